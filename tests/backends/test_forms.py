"""Other calls of a framework: each is asked where its users would, and is accused by itself."""

import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest

from d5test.backends.base import FLOATS, Always, Forms, Row, planned
from d5test.backends.torch import Torch
from d5test.case import Case, Tensor
from d5test.checks import CHECKS
from d5test.checks.inquiry import drawn_inputs
from d5test.client import registry
from d5test.client.client import WorkerClient
from d5test.exploration.cases import in_form
from d5test.reference.operators import OPERATORS
from d5test.reference.operators.elementwise import Pow
from d5test.reference.operators.linear import Gemm
from d5test.worker.worker import load

ROOT = Path(__file__).resolve().parents[2]
BROKEN = Path(__file__).with_name("broken_torch.py")


@pytest.mark.parametrize("operator", Torch.forms)
def test_each_form_is_of_an_operator_with_its_attributes(operator: str) -> None:
    known = {field.name for field in fields(OPERATORS[operator])}
    for row in Torch.forms[operator].values():
        assert isinstance(row, Row)
        assert set(row.attributes) <= known
        assert all(isinstance(values, tuple) for values in row.attributes.values())


@pytest.mark.parametrize("backend", ["torch", "tensorflow", "jax"])
def test_a_form_is_another_function_than_the_row_and_the_other_forms(backend: str) -> None:
    """An alias would be judged twice."""
    tables = load(registry.target(backend))
    for operator, forms in tables.forms.items():
        rows = [tables.rows[operator], *forms.values()]
        functions = [
            row.call.plan.function
            for row in rows
            if isinstance(row.call, planned) and isinstance(row.call.plan, Always)
        ]
        assert len({id(function) for function in functions}) == len(functions), operator


def test_each_form_is_asked_in_float32_and_in_one_more_dtype() -> None:
    """In which one its name says, so that a part of a run asks what the whole run does."""
    check, more = CHECKS["forms"], Counter[str]()
    for operator, forms in Torch.forms.items():
        for name, row in forms.items():
            asked = check.dtypes_of(operator + name, row.dtypes)
            assert asked == check.dtypes_of(operator + name, row.dtypes)
            (other,) = set(asked) - {"float32"}
            assert set(asked) == {other} | ({"float32"} & set(row.dtypes))
            more[other] += 1
    assert min(more.values()) > sum(more.values()) / 5, more


def test_a_form_is_asked_in_the_dtype_that_the_user_wants() -> None:
    check = CHECKS["forms"]
    assert check.dtypes_of("Relu", ["float16"]) == ("float16",)
    assert check.dtypes_of("Relu", ["float32"]) == ("float32",)
    assert check.dtypes_of("Relu", []) == ()
    assert len(check.dtypes_of("Relu", FLOATS, 99)) == 2
    assert set(check.dtypes_of("Relu", FLOATS, 100)) == set(FLOATS)
    assert CHECKS["low_precision"].dtypes_of("Relu", FLOATS) == ("float16", "bfloat16")


def test_a_subclass_has_what_is_known_of_its_base() -> None:
    with WorkerClient(f"{BROKEN}:Broken") as client:
        assert client.about.base == "torch"


def test_a_form_is_entered_once() -> None:
    forms = Forms()
    forms.same("Exp", {"exp": abs})
    with pytest.raises(ValueError, match="Exp has the form exp already"):
        forms.same("Exp", {"exp": abs})


def test_a_case_of_a_form_is_rebuilt_by_its_repr() -> None:
    case = in_form(Case(Gemm(transB=1), (Tensor((2, 3)),) * 2), "F.linear", {1: 2.0})
    assert eval(repr(case)) == case
    assert case.inputs[1] == Tensor((2, 3), values=("constant", 2.0))
    assert case.form == "F.linear"


def test_what_a_form_holds_constant_is_not_drawn() -> None:
    """Else a form that is right with its number is asked another one, and gives a wrong result."""
    case = in_form(Case(Pow(), (Tensor((3,)),) * 2), "x ** 3.0", {1: 3.0})
    assert [i for i, _ in drawn_inputs(case)] == [0]


def accused(backend: str, folder: Path, *options: str) -> set[tuple[str, str]]:
    """The operators and forms that a run of a wrong backend accuses."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", ROOT / "suites" / "operators", f"--backend={backend}",
         "-p", "no:cacheprovider", "-q", *options],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    failed = re.findall(r"^FAILED .*\[\S*Broken-(\w+)-\w+-?(.*)\]", run.stdout, re.MULTILINE)
    assert failed, run.stdout[-4000:]
    return set(failed)


@pytest.mark.nightly
def test_what_only_other_calls_get_wrong_is_found_and_nothing_else(tmp_path: Path) -> None:
    operators = (
        "Pad,BatchNormalization,LayerNormalization,Gemm,Max,Exp,Relu,Pow,MatMul,Slice,Gather"
    )
    options = (
        "--check=forms,special", f"--operator={operators}", "--dtype=float32", "--examples=50",
    )  # fmt: skip
    assert accused(f"{BROKEN}:Broken", tmp_path, *options) == {
        ("Pad", "torch.nn.functional.pad(negative, value=7.0)"),
        ("BatchNormalization", "torch.nn.functional.batch_norm(running_mean, running_var)"),
        ("BatchNormalization", "torch.nn.BatchNorm1d, 2d, 3d"),
        ("BatchNormalization", "torch.nn.BatchNorm2d, 3d in channels_last"),
        ("LayerNormalization", "torch.nn.functional.layer_norm without weight"),
        ("LayerNormalization", "torch.nn.functional.layer_norm without weight and bias"),
        ("Gemm", "torch.nn.functional.linear"),
        ("Gemm", "torch.nn.Linear"),
        ("MatMul", "torch.bmm"),
        ("Max", ""),
        ("Exp", "torch.exp(out=strided)"),
        ("Relu", "Tensor.relu_"),
        ("Pow", "torch.pow(x, 3.0)"),
        ("Slice", "torch.narrow"),
        ("Gather", "torch.nn.functional.embedding"),
        ("Gather", "torch.nn.Embedding"),
    }


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_autocast_that_casts_nothing_is_found(dtype: str, tmp_path: Path) -> None:
    options = "--check=forms", "--operator=MatMul", f"--dtype={dtype}", "-k", "autocast"
    assert accused(f"{BROKEN}:Broken", tmp_path, *options) == {("MatMul", "torch.autocast")}


@pytest.mark.nightly
def test_wrong_layers_and_tapes_are_found_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    backend = f"{BROKEN.with_name('broken_keras.py')}:Broken"
    options = "--check=forms", "--operator=Gemm,Tanh", "--dtype=float32"
    assert accused(backend, tmp_path, *options) == {
        ("Gemm", "keras.layers.Dense"),
        ("Gemm", "tf.GradientTape(persistent=True)"),
        ("Tanh", "tf.GradientTape(persistent=True)"),
    }
