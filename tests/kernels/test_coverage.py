"""What drawn cases enter and what real problems enter, of kernels that are known."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from d5test.case import Case, Operator, Tensor
from d5test.cli import main
from d5test.cli.kernels import spread
from d5test.client.client import WorkerClient
from d5test.kernels import output
from d5test.kernels.coverage import Cell, Wish, covered
from d5test.kernels.probe import Function
from d5test.kernels.problems import AFFORDABLE, real_cases
from d5test.kernels.symbols import counts, readable, short
from d5test.reference.operators import Abs, Conv, Relu

Start = Callable[..., WorkerClient]
SIDE = 100


def problems(operator: type[Operator]) -> Iterable[Case]:
    return [Case(operator(), (Tensor((SIDE, SIDE)),)), Case(operator(), (Tensor((SIDE,)),))]


def told(
    client: WorkerClient, operator: type[Operator], sizes: str, dtype: str = "float32"
) -> Cell:
    (cell,) = covered(client, Wish(10, 0, sizes, problems), [(operator, dtype)], lambda cell: None)
    return cell


def names(functions: Iterable[Function]) -> list[str]:
    return [readable(function) for function in functions]


def test_small_cases_miss_the_kernel_for_many_numbers(start: Start) -> None:
    client = start()
    small = told(client, Relu, "small")
    assert names(small.only_real) == ["many"]
    assert {"relu", "few", "gradient"} <= set(names(small.drawn))
    assert (small.problems, small.broken, small.why) == (2, 0, "")
    assert 0 < small.telling <= small.judged
    mixed = told(client, Relu, "mixed")
    assert names(mixed.only_real) == []
    assert "many" in names(mixed.drawn)


def test_what_a_wrong_case_enters_is_not_covered(start: Start) -> None:
    cell = told(start(), Abs, "small")
    assert cell.judged > 0
    assert cell.telling == 0
    assert cell.drawn == set()
    assert names(cell.only_real) == ["never"]


def test_a_cell_that_is_not_asked_says_why(start: Start) -> None:
    cell = told(start(), Relu, "small", "bfloat16")
    assert cell.why == "Relu is not declared for bfloat16 on " + start().name
    assert output.line(cell).endswith(cell.why)


def test_the_outputs_say_what_was_entered(start: Start, tmp_path: Path) -> None:
    client = start()
    cell = told(client, Relu, "small")
    wish = Wish(10, 0, "small", problems)
    assert output.names([cell]).splitlines() == [
        "", "Relu in float32: 1 entered by real problems only, first by",
        "  Relu() of 100x100", "    many",
    ]  # fmt: skip
    for name in ("a.json", "a.md"):
        output.write(tmp_path / name, client.about, wish, [cell])
    (written,) = json.loads((tmp_path / "a.json").read_text())["cells"]
    assert written["functions"]["real"] == ["many"]
    assert written["counts"] == {
        "both": len(cell.drawn & cell.real.keys()), "real": 1, "drawn": len(cell.only_drawn),
    }  # fmt: skip
    assert written["first"] == {"Relu() of 100x100": ["many"]}
    page = (tmp_path / "a.md").read_text()
    title = "## Relu in float32: 1 entered by real problems only"
    assert f"{title}\n\nRelu() of 100x100\n\n    many\n" in page
    assert f"| Relu | float32 | {cell.telling} | 2 |" in page


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("at::add(int, int)", "at::add"),
        ("void a::f<(b::Kind)1, b::C<c::D> >(int, a::g(char)) const", "a::f<(Kind)1, C<D> >"),
        ("bool c10::operator<(c10::SymInt const&, int)", "c10::operator<"),
        ("a::memory::operator()() const", "a::memory::operator()"),
        ("a::F::operator bool() const", "a::F::operator bool"),
        ("a::b(int)::{lambda(int)#1}::operator()(int) const", "a::b::{lambda(int)#1}::operator()"),
        ("x::t<(y::isa)13>::pd_t::init<f::g>(x)", "x::t<(isa)13>::pd_t::init<g>"),
        ("at::(anonymous namespace)::kernel(int)", "at::kernel"),
        ("mkl_blas_sgemv", "mkl_blas_sgemv"),
    ],
)
def test_names_are_short(name: str, shown: str) -> None:
    assert short(name) == shown


def test_what_the_standard_library_brings_is_no_function_of_the_framework() -> None:
    def counted(name: str) -> bool:
        return counts(Function("libx.so", 1, name))

    assert counted("_ZN2at3addEii")
    assert counted("dnnl_primitive_create")
    assert counted("")
    assert not counted("_ZNSt6vectorIiSaIiEE17_M_realloc_insertIJiEEEvv")
    assert not counted("_ZNKSt3mapIiiE4findERKi")
    assert not counted("_ZSt4moveIiEvv")
    assert not counted("_ZN9__gnu_cxx13new_allocatorIiE8allocateEv")
    assert not counted("_ZN2at3addEii.cold")


def test_real_problems_are_affordable() -> None:
    cases = list(real_cases(Conv))
    assert len(cases) > 100
    assert {case.shapes[0][0] for case in cases} >= {1, 8}  # type: ignore[index]
    assert all(0 < case.op.multiplications(*case.shapes) <= AFFORDABLE for case in cases)  # type: ignore[operator]
    assert list(real_cases(Relu)) == []


def test_so_many_are_spread_evenly() -> None:
    cases = list(real_cases(Conv))
    assert spread(cases, len(cases)) == cases
    assert spread(cases[:10], 3) == [cases[0], cases[3], cases[6]]


def test_the_command_prints_a_line_a_cell_and_writes_a_page(
    libraries: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("D5TEST_ENTERED", str(libraries["named"]))
    monkeypatch.setattr("d5test.kernels.problems.real_cases", problems)
    backend = Path(__file__).with_name("compiled.py")
    page = tmp_path / "page.md"
    status = main([
        "coverage", "--kernels", f"--backend={backend}:Compiled", "--operator=Relu",
        "--dtype=float32", "--examples=5", "--sizes=small", "--problems=1", "-o", str(page),
    ])  # fmt: skip
    assert status == 0
    (line,) = (t for t in capsys.readouterr().out.splitlines() if t.startswith("Relu  "))
    operator, dtype, telling, ran, *_, only_real, _ = line.split()
    assert (operator, dtype, ran, only_real) == ("Relu", "float32", "1", "1")
    assert int(telling) >= 5
    assert page.read_text().startswith("# Native functions entered")
