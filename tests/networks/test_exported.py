"""A module that `torch.onnx.export` wrote is a network like any other, and judged by level 1."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from d5test.client.client import WorkerClient
from d5test.names import BadName
from d5test.networks.executor import Executor
from d5test.networks.external import ExternalModel
from d5test.networks.nodes import judged_nodes
from d5test.networks.whole import expected
from d5test.networks.zoo import Built
from d5test.numerics.arithmetic import classes
from d5test.plugin.networks import resolved
from tests.nightly import at_night, thinned

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


@pytest.fixture(scope="module", params=["dynamo", at_night("torchscript")])
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


@pytest.mark.parametrize("module", thinned(HAS, 4))
def test_torchs_own_output_and_two_executors_are_right(exported: Path, module: str) -> None:
    path = exported / module / f"{module}.onnx"
    model = ExternalModel(module, path)
    network = model.network()
    assert {node.kind for node in network.nodes} >= HAS[module]
    ((inputs, outputs),) = model.samples(network)
    for backend in ("numpy", "torch"):
        with WorkerClient(backend) as client:
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
    assert "the outputs that came with the model: wrong" in ran.stdout


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / name / "model.onnx" for name in "ab"]
    for path in paths:
        path.parent.mkdir()
        path.touch()
    with pytest.raises(BadName, match=r"2 files are called model\.onnx"):
        resolved(tuple(map(str, paths)))


def open_model(folder: Path) -> Path:
    """A model of two inputs whose batch is left open."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy")
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 3])
    graph = helper.make_graph([helper.make_node("Add", ["x", "y"], ["z"])], "g", [x, y], [z])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, folder / "open.onnx")
    return folder / "open.onnx"


def test_open_sides_are_those_of_the_first_data_set(tmp_path: Path) -> None:
    path = open_model(tmp_path)
    assert Built.from_file(path).shapes == {"x": (2, 3), "y": (2, 3)}
    for number, batch in enumerate((5, 7)):
        folder = tmp_path / f"test_data_set_{number}"
        folder.mkdir()
        x = numpy_helper.from_array(np.ones((batch, 3), np.float32))
        for position in range(2):
            onnx.save_tensor(x, folder / f"input_{position}.pb")
    assert Built.from_file(path).shapes == {"x": (5, 3), "y": (5, 3)}
    onnx.save_tensor(
        numpy_helper.from_array(np.ones((5, 4), np.float32)),
        tmp_path / "test_data_set_0" / "input_1.pb",
    )
    assert Built.from_file(path).shapes == {"x": (2, 3), "y": (2, 3)}


@pytest.mark.parametrize("what", ["open.onnx", "test_data_set_0/input_1.pb"])
def test_a_file_that_is_none_of_onnx_is_one_line(tmp_path: Path, what: str) -> None:
    path = open_model(tmp_path)
    (tmp_path / "test_data_set_0").mkdir()
    (tmp_path / what).write_text("no protocol buffer")
    with pytest.raises(BadName, match=r"network '.*open\.onnx' cannot be read") as caught:
        resolved((str(path),))
    assert "\n" not in str(caught.value)


def suites(folder: Path, *modules: str) -> subprocess.CompletedProcess[str]:
    """Level 1 as a user runs it, on torch and on modules of a folder."""
    paths = ",".join(str(folder / name / f"{name}.onnx") for name in modules)
    command = [sys.executable, "-m", "pytest", "suites/networks", "-q", "--backend=torch",
               f"--network={paths}", "--deselect=suites/networks/test_time.py", "-rs",
               "-p", "no:cacheprovider"]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_a_network_of_ones_own_is_a_function_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from d5test.networks.zoo import Built, mlp\n"
        "def small():\n    return mlp((4, 3, 2))\n"
        "fed = Built('fed', small, {'x': (5, 4), 'labels': (5,)}, {'labels': 2})\n"
    )
    ours, others = resolved((f"{file}:small", f"{file}:fed"))
    assert list(ours) == ["small", "fed"]
    assert not others
    assert ours["fed"].inputs()["x"].shape == (5, 4)
    shape = ours["small"].inputs()["x"].shape
    assert shape[0] == 2  # a side without a size
    assert ours["small"].loss == "loss"
    with pytest.raises(BadName, match=r"^unknown network 'mpl': did you mean mlp"):
        resolved(("mpl",))
