"""What is invalid raises an exception, and does not end the process."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.check("invalid_arguments")
def test_invalid_arguments(explore: Callable[[], None]) -> None:
    explore()
