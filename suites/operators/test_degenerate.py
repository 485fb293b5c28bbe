"""Empty, scalar and size-one shapes."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.check("degenerate")
def test_degenerate(explore: Callable[[], None]) -> None:
    explore()
