"""A recipe keeps its bounds from each of its seeds."""

from collections.abc import Callable


def test_recipe(judge_recipe: Callable[[], None]) -> None:
    judge_recipe()
