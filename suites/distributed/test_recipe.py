"""A recipe keeps its bounds with every distributed optimizer, from each of its seeds."""

from collections.abc import Callable

import pytest


@pytest.mark.deadline(None)  # a recipe may take hours
def test_recipe(judge_learning: Callable[[], None]) -> None:
    judge_learning()
