"""The page of contracts, made from the backends' rows: python -m tests.backends.contracts > ..."""

from collections.abc import Iterator, Mapping
from importlib import import_module

from d5test.backends.base import Row
from d5test.reference.formulas import FORMULAS
from d5test.reference.operators import OPERATORS

BACKENDS = {"torch": "Torch", "tensorflow": "TensorFlow", "jax": "Jax"}
OTHERS = {
    "half away from zero": ("Round", "https://en.cppreference.com/w/c/numeric/math/round"),
    "maximum of interpolated": (
        "RoiAlign",
        "https://docs.openvino.ai/2026/documentation/openvino-ir-format/operation-sets/"
        "operation-specs/detection/roi-align-9.html",
    ),
}
"""Contracts of which no row of ours is, the operator of each, and who documents it."""
PAGE = "docs/contracts.md"
HEAD = """# What is judged as the framework documents it

ONNX leaves some things open, and in some a framework differs. Where the framework's documentation
says what it does, its row or form is judged by that: it says so by the words of the column `row`,
which a row of yours may have, too, and names the page in `source`. All else is judged as ONNX has
it; where neither says which, each of the results in question is right.

This page is made from the rows: `python -m tests.backends.contracts > docs/contracts.md`.

| framework | operator | calls | what is judged | row | source |
|---|---|---|---|---|---|
"""


def rows_of(framework: str) -> Iterator[tuple[str, str, Row]]:
    """Operator, how it is called, and the row: all rows and forms that say anything here."""
    backend = getattr(import_module(f"d5test.backends.{framework}"), BACKENDS[framework])
    forms: Mapping[str, Mapping[str, Row]] = backend.forms
    for operator in OPERATORS:
        for name, row in {"": backend.rows.get(operator), **forms.get(operator, {})}.items():
            if row and (row.source or any(differences(operator, row))):
                yield operator, name or "the row", row


def differences(operator: str, row: Row) -> Iterator[tuple[str, str]]:
    """What is judged otherwise than ONNX has it, in words, and how a row says so."""
    if row.contract:
        formula = FORMULAS[row.contract][OPERATORS[operator]]
        what = (formula.__doc__ or "").split("\n\n")[0].replace("\n", " ").replace("    ", "")
        yield what, f'`contract="{row.contract}"`'
    if row.propagates_nan:
        yield "A NaN reaches every result that depends on it.", "`propagates_nan=True`"
    if row.out_of_range:
        words = " or ".join(row.out_of_range)
        yield f"An index out of range: {words}.", f"`out_of_range={row.out_of_range!r}`"


def page() -> str:
    """The whole page."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for framework in BACKENDS:
        for operator, call, row in rows_of(framework):
            for what, said in differences(operator, row):
                key = (framework, operator, what, said, row.source)
                lines.setdefault(key, []).append(call if call == "the row" else f"`{call}`")
    rows = (
        (framework, operator, ", ".join(calls), what, said, f"[{name(source)}]({source})")
        for (framework, operator, what, said, source), calls in lines.items()
    )
    others = (
        ("another", operator, "a row of yours", *difference, f"[{name(source)}]({source})")
        for contract, (operator, source) in OTHERS.items()
        for difference in differences(operator, Row(reads_nothing, contract=contract))
    )
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in (*rows, *others))


def reads_nothing(op: object, *inputs: object) -> None:
    """Of a row that is never called."""


def name(source: str) -> str:
    """The page's name: what it documents."""
    return source.rstrip("/").rsplit("/", 1)[-1].removesuffix(".html")


if __name__ == "__main__":
    print(page(), end="")
