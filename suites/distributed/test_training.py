"""The first steps of a recipe: the loss is that of the base optimizer, or at least falls."""

from collections.abc import Callable

import pytest


@pytest.mark.deadline(180)  # the first imports the framework and runs the references
def test_first_steps(judge_begin: Callable[[], None]) -> None:
    judge_begin()
