"""The framework's own gradients, under random upstream gradients, lie within their bars."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.check("gradient")
def test_gradient(explore: Callable[[], None]) -> None:
    explore()
