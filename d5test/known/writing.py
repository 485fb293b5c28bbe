"""Rows of known failures as a file: what `reading` reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


def table(row: Mapping[str, Any]) -> str:
    """A `[[known]]` table. A value is a text, a number, a date, or a list or table of such."""
    lines = (f"{name} = {_value(value)}" for name, value in row.items())
    return "\n".join(["[[known]]", *lines, ""])


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, _present(value)))}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{name} = {_value(v)}' for name, v in value.items())} }}"
    if isinstance(value, str):
        # TOML's basic strings are JSON's, but for one control character
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)


def _present(values: Iterable[Any]) -> Iterable[Any]:
    return (value for value in values if value is not None)
