"""Every element of every output lies within the reference's error bar."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.check("forward")
def test_forward(explore: Callable[[], None]) -> None:
    explore()
