"""Reproducers show the fault while it is there, say when it is gone, and need NumPy alone."""

import ast
import dataclasses
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.dom import minidom

import pytest

from d5test.case import Case, Tensor
from d5test.checks import CHECKS, Evidence
from d5test.checks.inquiry import Inquiry
from d5test.client import registry
from d5test.client.client import WorkerClient
from d5test.client.messages import Feed
from d5test.fixtures.conclude import reproducer_of
from d5test.outcome.fault import Fault
from d5test.reference.operators import OPERATORS
from d5test.reproducer import prove, write
from d5test.reproducer.closure import Closure
from d5test.reproducer.compose import taken_apart
from d5test.reproducer.mark import interpreter_of
from d5test.worker.public_names import public_names
from d5test.worker.worker import load
from d5test.worker.writing import of_row
from tests.nightly import at_night
from tests.reproducer.strangers import case, fault_of, run

WRONG = {
    "value": ("forward", "return good * np.float32(1.001)"),
    "shape": ("forward", "return good[None]"),
    "dtype": ("forward", "return good.astype(np.float64)"),
    "exception": ("forward", "raise RuntimeError('no')"),
    "crash": ("forward", "os.kill(os.getpid(), signal.SIGSEGV); return good"),
    "nondeterministic": ("determinism", "return good + np.float32(STATE['calls'])"),
    "mutated": ("untouched", "np.add(x, 1, out=x); return good"),
    "overwritten": (
        "untouched",
        "out = STATE.setdefault('out', good); out[...] = good; return out",
    ),
    "cached": ("no_caching", "return STATE.setdefault(id(x), good)"),
    "accepted": ("invalid_arguments", "return good"),
}
MENDED = "return same(x) + y"


@pytest.mark.parametrize("kind", [kind for kind in WRONG if kind != "accepted"])
def test_shows_the_fault_and_its_end(kind: str, stranger: Any, tmp_path: Path) -> None:
    check, wrong = WRONG[kind]
    client = stranger(wrong)
    fault = fault_of(client, check)
    assert fault.kind == kind
    path = write(fault, client.about, tmp_path / "out")
    there = run(path)
    assert there.returncode == 1, there.stdout + there.stderr
    assert there.stdout.splitlines()[-1].startswith("still there")
    text = path.read_text()
    assert "UNUSED" not in text
    assert "d5test" not in "".join(line for line in text.splitlines() if "import" in line)
    path.write_text(text.replace(wrong, MENDED).replace("PATIENCE = 5", "PATIENCE = 0.1"))
    gone = run(path)
    assert gone.returncode == 0, gone.stdout + gone.stderr
    assert gone.stdout.splitlines()[-1].startswith("gone")


def test_a_call_is_repeated_until_it_differs(stranger: Any, tmp_path: Path) -> None:
    _, wrong = WRONG["nondeterministic"]
    client = stranger(wrong)
    path = write(fault_of(client, "determinism"), client.about, tmp_path)
    text = path.read_text()
    path.write_text(text.replace(wrong, "return good + np.float32(STATE['calls'] == 1000)"))
    there = run(path)
    assert there.returncode == 1, there.stdout + there.stderr
    assert "call 999, with the same inputs, gives other outputs" in there.stdout
    told = "return print(STATE['calls']) or good"
    path.write_text(text.replace(wrong, told).replace("PATIENCE = 5", "PATIENCE = 0.1"))
    gone = run(path)
    assert gone.returncode == 0, gone.stdout + gone.stderr
    assert len(gone.stdout.splitlines()) > 100


@pytest.mark.parametrize("name", ["wrong", "function", "main"])
def test_a_row_may_have_any_name(stranger: Any, tmp_path: Path, name: str) -> None:
    """One that the file needs itself is imported with its backend."""
    client = stranger(WRONG["value"][1], name=name)
    path = write(fault_of(client, "forward"), client.about, tmp_path)
    command = [sys.executable, str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr


def test_its_name_and_text_depend_on_the_fault_alone(stranger: Any, tmp_path: Path) -> None:
    client = stranger(WRONG["value"][1])
    first = write(fault_of(client, "forward"), client.about, tmp_path / "a")
    again = write(fault_of(client, "forward"), client.about, tmp_path / "b")
    assert first.name == again.name
    assert first.name.startswith("Add-forward-float32-")
    assert first.read_text() == again.read_text()


def test_it_names_the_interpreter_of_the_fault(stranger: Any, tmp_path: Path) -> None:
    client = stranger(WRONG["value"][1])
    fault = fault_of(client, "forward")
    path = write(fault, client.about, tmp_path)
    assert interpreter_of(path) == client.about.executable == sys.executable
    other = dataclasses.replace(client.about, executable="/other place/python")
    assert interpreter_of(write(fault, other, tmp_path)) == "/other place/python"
    assert run(path).returncode == 1
    _, told = reproducer_of(fault, other, tmp_path)
    assert told.endswith(".py (`d5test repro` runs it under /other place/python)")
    _, told = reproducer_of(fault, client.about, tmp_path)
    assert told.endswith(".py")


def test_a_shape_that_should_be_refused(stranger: Any, tmp_path: Path) -> None:
    client = stranger("return np.zeros((2, 3), np.float32)" + " if x.shape != y.shape else good")
    source = (tmp_path / "stranger.py").read_text().replace("same(x) + y", "x", 1)
    (tmp_path / "stranger.py").write_text(source)
    client.close()
    client = WorkerClient(f"{tmp_path / 'stranger.py'}:Mine")
    with client:
        fault = fault_of(client, "invalid_arguments")
        path = write(fault, client.about, tmp_path / "out")
    assert fault.kind == "accepted"
    assert run(path).returncode == 1
    path.write_text(path.read_text().replace("good = x", "good = x + y"))
    assert run(path).returncode == 0


def test_a_hang_ends(stranger: Any, tmp_path: Path) -> None:
    client = stranger("time.sleep(1e6)")
    inquiry = Inquiry("forward", SimpleNamespace(about=client.about), case())
    evidence = Evidence((inquiry.feed(),), "returns")
    fault = inquiry.subject.fault("hang", "no answer", evidence)
    path = write(fault, client.about, tmp_path / "out")
    path.write_text(path.read_text().replace("SECONDS = 60", "SECONDS = 2"))
    there = run(path)
    assert there.returncode == 1
    assert "no answer within 2 seconds" in there.stdout
    path.write_text(path.read_text().replace("time.sleep(1e6)", MENDED))
    assert run(path).returncode == 0


def test_a_missing_framework_is_no_fault(stranger: Any, tmp_path: Path) -> None:
    client = stranger(WRONG["value"][1])
    path = write(fault_of(client, "forward"), client.about, tmp_path / "out")
    path.write_text(path.read_text().replace("import numpy as np", "import no_framework as np"))
    done = run(path)
    assert done.returncode == 2
    assert "cannot be tried: ModuleNotFoundError" in done.stdout


def test_a_missing_runtime_is_no_answer_to_the_call(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    with WorkerClient("onnxruntime") as client:
        inquiry = Inquiry("forward", client, case())
        fault = inquiry.subject.fault("exception", "no", Evidence((inquiry.feed(),), "returns"))
        path = write(fault, client.about, tmp_path)
    assert run(path).returncode == 0
    missing = tmp_path / "onnxruntime.py"
    missing.write_text('raise ModuleNotFoundError("No module named onnxruntime")')
    done = run(path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "cannot be tried: ModuleNotFoundError: No module named onnxruntime" in done.stdout


def test_a_model_is_one_that_the_runtime_reads(tmp_path: Path) -> None:
    """ONNX may have newer operator sets, and an operator its newest version in one of them."""
    from d5test.reference.operators import OPERATORS

    pytest.importorskip("onnxruntime")
    axes = Tensor((1,), "int64", data=(0,))
    asked = Case(OPERATORS["ReduceLogSumExp"](keepdims=0), (Tensor((3, 2)), axes))
    with WorkerClient("onnxruntime") as client:
        inquiry = Inquiry("forward", client, asked)
        fault = inquiry.subject.fault("exception", "no", Evidence((inquiry.feed(),), "returns"))
        path = write(fault, client.about, tmp_path)
        assert fault.details["model"] == f"operator set {client.about.opset}"
    done = run(path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_implementation_of_models_need_not_be_named_like_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runtime_of_mine.py").write_text(
        "from types import SimpleNamespace\n"
        "class Mine:\n"
        "    def prepare(model, device):\n"
        "        return SimpleNamespace(run=lambda inputs: [inputs[0] + inputs[1]])\n"
    )
    (tmp_path / "backend.py").write_text(
        "from d5test.backends.onnx import OnnxBackend\n"
        "class Mine(OnnxBackend):\n"
        "    framework = 'onnx'\n"
        "    implementation = 'runtime_of_mine:Mine'\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}")
    with WorkerClient(f"{tmp_path / 'backend.py'}:Mine") as client:
        inquiry = Inquiry("forward", client, case())
        fault = inquiry.subject.fault("exception", "no", Evidence((inquiry.feed(),), "returns"))
        path = write(fault, client.about, tmp_path / "out")
    assert f"Needs onnx, runtime_of_mine and NumPy; looks in {tmp_path} too." in path.read_text()
    done = run(path)
    assert (done.returncode, done.stdout[:11]) == (0, "gone (onnx "), done.stdout + done.stderr
    (tmp_path / "runtime_of_mine.py").unlink()
    missing = run(path)
    assert "cannot be tried: ModuleNotFoundError: No module named 'runtime_of" in missing.stdout
    assert missing.returncode == 2


def test_an_implementation_in_the_backends_own_file_is_imported(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text(
        "from types import SimpleNamespace\n"
        "from d5test.backends.onnx import OnnxBackend\n"
        "class Runtime:\n"
        "    def prepare(model, device):\n"
        "        return SimpleNamespace(run=lambda inputs: [inputs[0] - inputs[1]])\n"
        "class Mine(OnnxBackend):\n"
        "    framework = 'onnx'\n"
        "    implementation = 'alone:Runtime'\n"
    )
    with WorkerClient(f"{tmp_path / 'alone.py'}:Mine") as client:
        path, told = prove(fault_of(client, "forward"), client, tmp_path / "out")
    assert told == ""
    assert "is imported: its file has the runtime alone:Runtime" in path.read_text()
    done = run(path, PYTHONPATH=str(Path(__file__).parents[2]))
    assert done.returncode == 1, done.stdout + done.stderr


def test_a_source_that_cannot_be_taken_apart_is_imported(tmp_path: Path) -> None:
    with WorkerClient("numpy") as client:
        inquiry = Inquiry("forward", client, case())
        feed = inquiry.feed()
        bounds = inquiry.forward_bounds(inquiry.classes()[0])
        evidence = Evidence((feed,), "within", (bounds,), (0, 1))
        fault = inquiry.subject.fault("value", "is wrong", evidence)
        path = write(fault, client.about, tmp_path)
    assert "Needs d5test" in path.read_text()
    done = run(path, PYTHONPATH=str(Path(__file__).parents[2]))
    assert done.returncode == 0, done.stderr
    missing = "raise ModuleNotFoundError(\"No module named 'd5test'\", name='d5test')"
    (tmp_path / "d5test.py").write_text(missing)
    alone = run(path, PYTHONPATH=str(tmp_path))
    assert (alone.returncode, alone.stderr) == (2, "")
    assert alone.stdout == (
        f"cannot be tried: ImportError: {sys.executable} has no d5test; "
        f"`d5test repro {path}` brings it\n"
    )


def test_a_backend_that_wraps_a_row_of_another_is_imported(tmp_path: Path) -> None:
    (tmp_path / "wrapping.py").write_text(
        "from dataclasses import replace\n"
        "from d5test.backends.numpy import Numpy\n"
        "ADD = Numpy.rows['Add']\n"
        "def add(op, x, y):\n"
        "    (z,) = ADD.call(op, x, y)\n"
        "    return z + 1\n"
        "class Wrapping(Numpy):\n"
        "    rows = {**Numpy.rows, 'Add': replace(ADD, call=add)}\n"
    )
    with WorkerClient(f"{tmp_path / 'wrapping.py'}:Wrapping") as client:
        path, failure = prove(fault_of(client, "forward"), client, tmp_path / "out")
    assert failure == ""
    assert "wrapping uses the rows of a backend" in path.read_text()


def test_the_module_of_a_function_is_imported_not_its_package_alone() -> None:
    """`import mlx` makes no `mlx.nn`."""
    names = {id(minidom.parse): "xml.dom.minidom.parse", id(partial): "xml.alias.partial"}
    assert of_row(minidom.parse, names).modules == ("xml.dom.minidom",)
    assert of_row(partial, names).modules == ("xml",)


COMPILED = ("torch-compiled", "tensorflow-xla", "jax-compiled")


@pytest.mark.parametrize("name", ["torch", *map(at_night, COMPILED)])
def test_every_row_of_ours_can_be_taken_apart(name: str) -> None:
    from d5test.reference.operators import OPERATORS

    pytest.importorskip(name.partition("-")[0])
    evidence = Evidence((Feed((), ()),), "within")
    backend = load(registry.target(name))
    names = public_names(backend.framework)
    table = {
        key: SimpleNamespace(**of_row(row.call, names)._asdict())
        for key, row in backend.rows.items()
    }
    about = SimpleNamespace(
        name=name, device="cpu", framework=backend.framework, sources={}, rows=table,
        implementation="", row_of=lambda case: table[case.op.name],
    )  # fmt: skip
    assert len(about.rows) > 40
    rows = [operator for operator in OPERATORS if operator in about.rows]
    for operator in rows:
        closure = Closure()
        named = SimpleNamespace(op=SimpleNamespace(name=operator))
        asked = SimpleNamespace(case=named, evidence=evidence, kind="")
        subject = taken_apart(asked, about, closure)  # type: ignore[arg-type]
        text = "\n".join("\n".join(statements) for statements in closure.parts().values())
        ast.parse(text + "\n" + "\n".join(subject.preparation), feature_version=(3, 10))
        assert "d5test" not in "".join(line for line in text.splitlines() if "import" in line)


def test_a_row_may_keep_what_it_compiled_by_its_operator(tmp_path: Path) -> None:
    """jax.jit does, of an operator that is a static argument."""
    from d5test.reference.operators import OPERATORS

    pytest.importorskip("jax")
    inputs = (Tensor((2, 3, 2)), Tensor((1, 16, 2)), Tensor((1, 16, 4)))
    with WorkerClient("jax") as client:
        inquiry = Inquiry("forward", client, Case(OPERATORS["LSTM"](hidden_size=4), inputs))
        expected = inquiry.forward_bounds(inquiry.loosest)
        fault = inquiry.fault("value", "is wrong", (inquiry.feed(),), "within", None, (expected,))
        path = write(fault, client.about, tmp_path)
    done = run(path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["torch", "jax", "onnxruntime"])
@pytest.mark.parametrize("dtype", ["float32", at_night("bfloat16")])
def test_frameworks(name: str, dtype: str, tmp_path: Path) -> None:
    from d5test.reference.operators import OPERATORS

    pytest.importorskip(name)
    if (name, dtype) == ("onnxruntime", "bfloat16"):
        pytest.skip("ONNX Runtime has no Conv in bfloat16 on the CPU")
    inputs = (Tensor((2, 4, 7, 5), dtype), Tensor((6, 2, 3, 2), dtype))
    asked = Case(OPERATORS["Conv"](group=2, strides=(2, 1)), inputs, 3)
    with WorkerClient(name) as client:
        inquiry = Inquiry("gradient", client, asked)
        grads = None if inquiry.row.gradient else inquiry.upstream
        feed = inquiry.feed(grads=grads)
        loosest = inquiry.classes()[-1]
        bounds = (
            inquiry.forward_bounds(loosest)
            if grads is None
            else inquiry.gradient_bounds(loosest, grads)
        )
        evidence = Evidence((feed,), "within", (bounds,), asked.wanted)
        path = write(
            inquiry.subject.fault("gradient", "is wrong", evidence), client.about, tmp_path
        )
    done = run(path)
    assert done.returncode == 0, done.stdout + done.stderr
    text = path.read_text()
    assert f"Needs {name} and NumPy alone." in text
    assert "d5test" not in "".join(line for line in text.splitlines() if "import" in line)
    path.write_text(
        text.replace("strides=(2, 1)", "strides=(1, 1)").replace("MODEL = (", "MODEL = ('x'")
    )
    assert run(path).returncode != 0


WIDENED = """
from d5test.backends.torch import Torch


class Widened(Torch):
    def get(self, tensor):
        return super().get(tensor.float() if tensor.dtype.itemsize == 2 else tensor)
"""
MATRICES = (Tensor((2, 3)), Tensor((3, 4)))
IMAGES = (Tensor((1, 2, 5)), Tensor((3, 2, 2)))
HEADS = (Tensor((1, 1, 2, 4)), Tensor((1, 1, 3, 4)), Tensor((1, 1, 3, 5)))
FORMS = {
    "MatMul": ({}, MATRICES, "torch.autocast"),
    "Gemm": ({}, (*MATRICES, Tensor((4,))), "torch.autocast"),
    "Conv": ({"kernel_shape": (2,)}, IMAGES, "torch.autocast"),
    "Attention": ({}, HEADS, "scaled_dot_product_attention by SDPBackend.MATH"),
}


@pytest.mark.nightly
def test_a_form_that_calls_the_row_is_taken_out_with_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "widened.py").write_text(WIDENED)
    with WorkerClient(f"{tmp_path / 'widened.py'}:Widened", threads=1) as client:
        for name, (attributes, inputs, form) in FORMS.items():
            halves = tuple(dataclasses.replace(x, dtype="float16") for x in inputs)
            asked = Case(OPERATORS[name](**attributes), halves, form=form)
            with pytest.raises(Fault) as caught:
                CHECKS["forms"].run(client, asked)
            ran = run(write(caught.value, client.about, tmp_path))
            assert ran.returncode == 1, ran.stdout + ran.stderr
            assert "float32" in ran.stdout
