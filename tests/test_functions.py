"""Which functions are judged is told as it is, and so is what nobody calls."""

from pathlib import Path

import pytest

from d5test.backends.base import Backend
from d5test.cli import main
from d5test.client import registry
from d5test.functions import Line, family, named, uncalled
from d5test.reference.operators import OPERATORS
from d5test.worker.worker import load

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "functions.md"
BROKEN = Path(__file__).parent / "backends" / "broken_torch.py"


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("torch.nn.Conv1d, 2d, 3d", {"torch.nn.Conv1d", "torch.nn.Conv2d", "torch.nn.Conv3d"}),
        ("torch.nn.Conv2d, 3d in channels_last", {"torch.nn.Conv2d", "torch.nn.Conv3d"}),
        ("keras.layers.MaxPool1D, 2D, 3D",
         {"keras.layers.MaxPool1D", "keras.layers.MaxPool2D", "keras.layers.MaxPool3D"}),
        ("torch.nn.functional.pad(negative, value=7.0)", {"torch.nn.functional.pad"}),
        ("lax.reduce(x, 0, lax.add)", {"lax.reduce", "lax.add"}),
        ("Tensor.t, mT", {"Tensor.t"}),
        ("a + b", set()),
    ],
)  # fmt: skip
def test_a_form_names_the_functions_that_it_calls(title: str, names: set[str]) -> None:
    assert named(title) == names


def test_siblings_are_of_one_family() -> None:
    names = ("torch.nn.functional.leaky_relu_", "torch.nn.LeakyReLU", "jax.nn.leaky_relu")
    assert {family(name) for name in names} == {"leakyrelu"}
    assert family("torch.nn.Conv2d") == family("torch.conv1d") == family("keras.layers.Conv3D")
    assert family("torch.log1p") != family("torch.log")


def line(operator: str, form: str, *called: str) -> Line:
    return Line(operator, form, True, called, ("float32",))


def test_what_no_row_and_no_form_calls_is_left() -> None:
    offered = [
        ("torch.relu", "torch.nn.functional.relu"), ("torch.relu_",), ("torch.nn.ReLU",),
        ("Tensor.relu",), ("torch.sin",),
    ]  # fmt: skip
    row = line("Relu", "", "torch.relu")
    assert uncalled(offered, [row]) == {"Relu": ("torch.relu_", "torch.nn.ReLU", "Tensor.relu")}
    forms = [line("Relu", "Tensor.relu"), line("Relu", "torch.nn.ReLU", "torch.nn.ReLU")]
    assert uncalled(offered, [row, *forms]) == {"Relu": ("torch.relu_",)}


def test_a_function_of_many_operators_is_none_s_own() -> None:
    many = [line(name, "torch.clamp") for name in ("Exp", "Log", "Abs", "Neg")]
    offered = [("torch.clamp",), ("Tensor.clamp",)]
    assert uncalled(offered, many) == {}
    assert uncalled(offered, many[:2]) == {"Exp": ("Tensor.clamp",)}


def test_a_function_that_takes_part_is_not_the_operator_s_own() -> None:
    composed = Line("Gemm", "", False, ("torch.matmul", "torch.add"), ("float32",))
    assert uncalled([("Tensor.add",), ("Tensor.matmul",)], [composed]) == {}


def test_the_command_prints_each_row_and_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    page = tmp_path / "page.md"
    arguments = ["--backend=torch", "--operator=Celu", "--examples=2", "-o", str(page)]
    assert main(["coverage", "--functions", *arguments]) == 0
    text = page.read_text()
    assert "| Celu | its row | torch.nn.functional.celu | own | d s h b |" in text
    assert "| Celu | torch.nn.functional.celu_ |" in text
    assert "2 of 2" in capsys.readouterr().out


def test_a_wrong_form_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    backend = f"--backend={BROKEN}:Broken"
    assert main(["coverage", "--functions", backend, "--operator=Slice", "--examples=3"]) == 1
    assert "1 wrong" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--functions", "--kernels", "--backend=torch"], "ask for one of them"),
        (["--functions"], "say of which backend: --backend=torch"),
        (["--functions", "--backend=torhc"], "did you mean torch"),
        (["--functions", "--backend=torch", "--operator=Rleu"], "did you mean Relu"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["coverage", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("backend", ["torch", "tensorflow", "jax"])
def test_the_page_has_each_row_and_form(backend: str) -> None:
    """What the command would count is not on the page: it may differ between machines."""
    pytest.importorskip(backend)
    tables: type[Backend] = load(registry.target(backend))
    part = PAGE.read_text().partition(f"## {backend} ")[2].partition("\n## ")[0]
    rows = [row.replace(r"\|", "\0") for row in part.splitlines() if row.startswith("| ")][1:]
    listed = [[cell.replace("\0", "|") for cell in row.split(" | ")[:2]] for row in rows]
    there = [
        [operator, form or "its row"]
        for operator in OPERATORS
        if operator in tables.rows
        for form in ("", *tables.forms.get(operator, {}))
    ]
    assert [["".join(o).removeprefix("| "), f] for o, f in listed] == there, (
        "d5test coverage --functions --backend=torch,tensorflow,jax -o docs/functions.md"
    )
