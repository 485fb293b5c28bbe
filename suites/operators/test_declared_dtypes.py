"""The dtypes that a backend declares are those that work."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.check("declared_dtypes")
def test_declared_dtypes(explore: Callable[[], None]) -> None:
    explore()
