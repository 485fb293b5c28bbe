"""The file with flags in docs/gpu.md is a backend, and the flags are set where it computes."""

import re
from pathlib import Path

import numpy as np
import pytest

from d5test.client.client import WorkerClient
from d5test.client.messages import Feed
from d5test.reference.operators import Conv

pytest.importorskip("torch")
PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"


def test_the_flags_of_the_page_are_set(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(# flags\.py\n.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "flags.py").write_text(block)
    x, w = np.ones((2, 8, 9, 9), np.float32), np.ones((16, 8, 3, 3), np.float32)
    with WorkerClient(f"{tmp_path / 'flags.py'}:Flags") as client:
        client.start_timing(Conv(), [Feed((x, w))], loops=1)
        client.time_round()
        timed = client.stop_timing()
        template = client.about.template
    assert np.all(timed.outputs[0][0] == 72)
    # without the last flag oneDNN convolves, see test_kernel_names
    assert timed.kernels[0] == "aten::convolution"
    assert not any(name.startswith("convolution:") for name in timed.kernels)
    assert template is not None
    assert "torch.backends.mkldnn.enabled = False" in template.imports
