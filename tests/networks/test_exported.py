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


@pytest.fixture(scope="module", params=[(m, e) for m in HAS for e in NEEDS], ids="-".join)
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """A module's name, and the file that torch wrote, in a process of its own."""
    module, exporter = request.param
    if importlib.util.find_spec(NEEDS[exporter]) is None:
        pytest.skip(f"{NEEDS[exporter]} is not installed")
    folder = tmp_path_factory.mktemp(f"{module}_{exporter}")
    command = [sys.executable, str(EXPORT), module, exporter, str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return module, folder / "model.onnx"


def test_torchs_own_output_and_two_executors_are_right(exported: tuple[str, Path]) -> None:
    module, path = exported
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


def test_the_suites_take_its_path(exported: tuple[str, Path], tmp_path: Path) -> None:
    module, path = exported
    ran = suites(path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    if module == "bent":
        assert "4 passed" in ran.stdout
    else:
        assert "3 passed, 1 skipped" in ran.stdout
        assert "has no output called loss" in ran.stdout
    shutil.copytree(path.parent, tmp_path, dirs_exist_ok=True)
    (other,) = tmp_path.glob("test_data_set_0/output_0.pb")
    other.write_bytes(other.read_bytes()[:-4] + np.float32(1e3).tobytes())
    ran = suites(tmp_path / path.name)
    assert ran.returncode == 1
    assert "the outputs that came with the model (eager): wrong" in ran.stdout


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / name / "model.onnx" for name in "ab"]
    for path in paths:
        path.parent.mkdir()
        path.touch()
    with pytest.raises(pytest.UsageError, match=r"2 files are called model\.onnx"):
        resolved(tuple(map(str, paths)))


def suites(path: Path) -> subprocess.CompletedProcess[str]:
    """Level 1 as a user runs it, on torch."""
    command = [sys.executable, "-m", "pytest", "suites/networks", "-q", "--backend=torch",
               f"--network={path}", "--deselect=suites/networks/test_time.py",
               "-p", "no:cacheprovider"]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
