"""The page of operators is that of the references."""

from pathlib import Path

from d5test.reference.operators import OPERATORS
from tests.reference.listing import PAGE, page, section

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_fresh() -> None:
    how = "python -m tests.reference.listing > docs/operators.md"
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page(), f"write it again: {how}"


def test_a_section_tells_inputs_attributes_and_what_the_kind_has_in_common() -> None:
    lstm = section(OPERATORS["LSTM"])
    assert "* inputs: `x, w, r, b=None, sequence_lens=None, *rest`" in lstm
    assert "* attributes: `direction='forward', hidden_size=None, layout=0`" in lstm
    assert "Recurrent: A layer of cells." in lstm


def test_an_attribute_without_a_default_is_named_alone() -> None:
    assert "* attributes: `equation`" in section(OPERATORS["Einsum"])


def test_an_operator_without_attributes_has_no_line_of_them() -> None:
    assert "attributes" not in section(OPERATORS["Relu"])
