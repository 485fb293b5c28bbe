"""Strided, transposed, broadcast, offset and reversed inputs give the same results."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.check("layout")
def test_layout(explore: Callable[[], None]) -> None:
    explore()
