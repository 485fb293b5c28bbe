"""A module that `torch.onnx.export` wrote is a network like any other, and judged by level 1."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from d5test.backends.client import Client
from d5test.networks.executor import Executor
from d5test.networks.nodes import judged_nodes
from d5test.networks.strangers import Stranger
from d5test.networks.whole import expected
from d5test.numerics.arithmetic import classes
from d5test.plugin.networks import resolved

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

EXPORT = Path(__file__).with_name("exported.py")
NEEDS = {"dynamo": "onnxscript", "torchscript": "onnx"}
"""The exporters of torch, and what they need beside it."""
HAS = {
    "images": {"Conv", "Relu", "MaxPool", "AveragePool", "Gemm"},
    "bent": {"Clip", "Elu", "HardSwish", "InstanceNormalization", "PRelu", "Selu"},
    "words": {"Gather", "MatMul", "Softmax", "LayerNormalization", "Gelu"},
}
(SINGLE,) = classes("float32", flushes=True)


@pytest.fixture(scope="module", params=NEEDS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what one of torch's exporters wrote, in a process of its own."""
    exporter = request.param
    if importlib.util.find_spec(NEEDS[exporter]) is None:
        pytest.skip(f"{NEEDS[exporter]} is not installed")
    folder: Path = tmp_path_factory.mktemp(exporter)
    command = [sys.executable, str(EXPORT), exporter, str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


@pytest.mark.parametrize("module", HAS)
def test_torchs_own_output_and_two_executors_are_right(exported: Path, module: str) -> None:
    path = exported / module / f"{module}.onnx"
    model = Stranger(module, path)
    network = model.network()
    assert {node.kind for node in network.nodes} >= HAS[module]
    ((inputs, outputs),) = model.samples(network)
    for backend in ("numpy", "torch"):
        with Client(backend) as client:
            executor = Executor(client, network)
            wanted = expected(executor.graph(inputs), lambda _: inputs, None, SINGLE)
            assert wanted.telling
            assert wanted.judged(outputs).right
            assert wanted.judged(executor.inference(inputs)).right
            wrong = {name: y * np.float32(1.0001) for name, y in outputs.items()}
            assert not wanted.judged(wrong).right
            found = judged_nodes(executor, inputs, None)
        assert not found.faults
        assert not found.reasons
        assert found.judged == len(executor.graph(inputs).nodes)


def test_the_suites_take_their_paths(exported: Path) -> None:
    ran = suites(exported, *HAS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "10 passed, 2 skipped" in ran.stdout
    for module in ("images", "words"):
        assert f"{module} has no output called loss" in ran.stdout


def test_an_output_that_the_exporter_never_had_is_wrong(exported: Path, tmp_path: Path) -> None:
    shutil.copytree(exported / "bent", tmp_path / "bent")
    output = tmp_path / "bent" / "test_data_set_0" / "output_0.pb"
    output.write_bytes(output.read_bytes()[:-4] + np.float32(1e3).tobytes())
    ran = suites(tmp_path, "bent")
    assert ran.returncode == 1
    assert "the outputs that came with the model (eager): wrong" in ran.stdout


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / name / "model.onnx" for name in "ab"]
    for path in paths:
        path.parent.mkdir()
        path.touch()
    with pytest.raises(pytest.UsageError, match=r"2 files are called model\.onnx"):
        resolved(tuple(map(str, paths)))


def suites(folder: Path, *modules: str) -> subprocess.CompletedProcess[str]:
    """Level 1 as a user runs it, on torch and on modules of a folder."""
    paths = ",".join(str(folder / name / f"{name}.onnx") for name in modules)
    command = [sys.executable, "-m", "pytest", "suites/networks", "-q", "--backend=torch",
               f"--network={paths}", "--deselect=suites/networks/test_time.py", "-rs",
               "-p", "no:cacheprovider"]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
