"""The page of operators, made from the references: python -m tests.reference.listing > ..."""

import inspect
from collections.abc import Iterator
from dataclasses import MISSING, fields

from d5test.case import Operator
from d5test.reference.operators import OPERATORS

PAGE = "docs/operators.md"
HEAD = """# The operators

What a row of a backend, and `d5test.check(..., like=...)`, has to know of each operator: its
inputs, in their order, with `=None` for those that may be left out, and its attributes, with
ONNX's defaults. An attribute without a default has to be given. The names, and what they mean, are
[ONNX's](https://onnx.ai/onnx/operators/), in the version that is named. A row is called with
`op`, whose fields are the attributes, and then with the inputs.

This page is made from the references: `python -m tests.reference.listing > docs/operators.md`.

"""


def page() -> str:
    """The whole page, operators by name."""
    return HEAD + "\n".join(section(operator) for _, operator in sorted(OPERATORS.items()))


def section(operator: type[Operator]) -> str:
    """Inputs, attributes and what the reference says of them."""
    inputs = list(inspect.signature(operator.forward).parameters.values())[1:]
    lines = [f"## {operator.__name__}", ""]
    lines += [f"* inputs: `{', '.join(str(p) for p in inputs)}`"]
    if attributes := list(attributes_of(operator)):
        lines += [f"* attributes: `{', '.join(attributes)}`"]
    return "\n".join([*lines, "", "```text", "\n\n".join(said(operator)), "```", ""])


def said(operator: type[Operator]) -> Iterator[str]:
    """The docstring of an operator, and those of the kinds that it is of."""
    for cls in operator.__mro__:
        if cls.__module__.startswith("d5test.reference") and "__doc__" in vars(cls):
            kind = "" if cls is operator else f"{cls.__name__.lstrip('_')}: "
            yield kind + (inspect.getdoc(cls) or "")


def attributes_of(operator: type[Operator]) -> Iterator[str]:
    """Names, with the defaults where there are any."""
    for field in fields(operator):  # type: ignore[arg-type]
        default = field.default
        yield field.name if default is MISSING else f"{field.name}={default!r}"


if __name__ == "__main__":
    print(page(), end="")
