"""What docs/native.md has you write for a C function is run and judged."""

from pathlib import Path
from typing import Any

import pytest

from d5test.outcome.fault import Fault

PAGE = (Path(__file__).parents[2] / "docs" / "native.md").read_text(encoding="utf-8")


def test_a_c_function_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(PAGE.split("```python")[1].split("```")[0], names)
    names["test_silu"]()


def test_a_mistake_in_it_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of x / (1 + exp(-x)): the quick form of Gelu."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    block = PAGE.split("```python")[1].split("```")[0]
    exec(block.replace("std::exp(-x[i])", "std::exp(-1.702f * x[i])"), names)
    with pytest.raises(Fault, match="the result is wrong"):
        names["test_silu"]()
