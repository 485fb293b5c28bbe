"""The page of ONNX's operators is what the schemas and our tables say."""

from pathlib import Path

import pytest

from d5test.cli import main
from d5test.cli.operators import lines, schemas

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/coverage.md"


def test_the_page_is_fresh(tmp_path: Path) -> None:
    made = tmp_path / "coverage.md"
    assert main(["coverage", "-o", str(made)]) == 0
    assert made.read_text() == (ROOT / PAGE).read_text(), (
        f"write it again: d5test coverage -o {PAGE}"
    )


def test_what_is_missing_is_a_line() -> None:
    relu, unique = lines(["numpy"], ["Relu", "StringConcat"])
    assert relu.cells == ("Relu", "14", "by hand", "1 of 1", "own", relu.largest)
    assert int(relu.largest.replace(",", "")) > 30_000
    assert unique.cells == ("StringConcat", "- (20)", "-", "0 of 5", "-", "-")


def test_each_operator_of_onnx_is_named_once() -> None:
    assert len(schemas()) > 190
    assert "Relu" in schemas()
    assert "Upsample" not in schemas()  # deprecated


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--functions", "--kernels"], "ask for one of them"),
        (["--operator=Relo"], "did you mean Relu"),
        (["--backend=torhc"], "did you mean torch"),
        (["-o", "page.txt"], "its name ends with .md"),
    ],
)
def test_a_mistake_is_one_line(
    capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert main(["coverage", *options]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert words in line
