"""A sample's result does not depend on the other samples of its batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.check("batch")
def test_batch(explore: Callable[[], None]) -> None:
    explore()
