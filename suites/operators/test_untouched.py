"""Inputs and upstream gradients are left as they were."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.check("untouched")
def test_untouched(explore: Callable[[], None]) -> None:
    explore()
