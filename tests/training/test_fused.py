"""torch's fused optimizers on a CPU still misread gradients, as `TorchFused.misreads` says."""

import pytest
import torch

from d5test.backends.torch.optimizers import TorchFused, TorchUpdater
from d5test.reference.optimizers import OPTIMIZERS
from d5test.reference.steps import as_step


@pytest.mark.parametrize("rule", [name for name in OPTIMIZERS if name in TorchFused.kinds])
def test_strides_of_a_gradient_are_ignored(rule: str) -> None:
    """Once this fails torch has mended it: `misreads` goes, or is limited to versions."""
    assert TorchFused.misreads
    step = as_step(OPTIMIZERS[rule](**TorchFused.fixed[rule]))
    gradient = (torch.arange(6.0) - 2.5).reshape(3, 2).t()
    after = []
    for kind in (TorchUpdater, TorchFused):
        for g in (gradient, gradient.contiguous()):
            updater = kind(step, {"w": torch.full((2, 3), 0.5)})
            updater.step({"w": g})
            after.append(updater.parameters["w"])
    strided, contiguous, fused_strided, fused = after
    torch.testing.assert_close(strided, contiguous)
    torch.testing.assert_close(fused, contiguous)
    assert not torch.allclose(fused_strided, contiguous)
