"""The framework's gradient agrees with differences of the framework's own forward."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.check("numerical_gradient")
def test_numerical_gradient(explore: Callable[[], None]) -> None:
    explore()
