"""The models as functions of their parameters: what PyTorch's modules compute."""

from importlib import import_module

import numpy as np
import pytest

from d5test.engines.cases import CASES
from d5test.engines.functional import Parameters, outputs
from d5test.engines.training import Training

FUNCTIONS = {
    "jax": "d5test.engines.jax_parallel:JaxFunctions",
    "tensorflow": "d5test.engines.tensorflow_parallel:TensorFlowFunctions",
}


@pytest.mark.parametrize(
    "framework", ["jax", pytest.param("tensorflow", marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("case", ["mlp-tied", "transformer-sgd", "experts-sgd", "residual-sgd"])
def test_a_function_computes_what_the_module_does(framework: str, case: str) -> None:
    """Within float32: the precision of jax is that of a process."""
    module, _, name = FUNCTIONS[framework].partition(":")
    functions = getattr(pytest.importorskip(framework) and import_module(module), name)()
    training = Training(CASES[case], "float32", ranks=2)
    model, batch = training.model(), training.batches()[0]
    parameters = Parameters.of(model)
    y = outputs(functions, parameters.under_all_names(parameters.values), batch.x.numpy())
    np.testing.assert_allclose(np.asarray(y), model(batch.x).detach(), rtol=1e-4, atol=1e-5)
