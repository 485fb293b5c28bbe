"""One step of the framework's own optimizer, parameter and state, lies within the bars."""

from collections.abc import Callable

from d5test.fixtures.training import Body
from d5test.training.step import step


def test_step(each_step: Callable[[Body], None]) -> None:
    each_step(step)
