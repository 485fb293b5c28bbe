"""A run that is interrupted or terminated ends with the summary of what was judged.

Ctrl-C pressed twice is pressed once: the second must not fall into the summary of the first. It
interrupts the summary too if it is pressed after a second. SIGTERM, which `timeout` and job
schedulers send, is an interrupt, except on ranks, which their sentry ends.
"""

import signal
import threading
import time
from types import FrameType

import pytest

from d5test.distributed.provider import launched

BOUNCE = 1.0
"""Seconds in which further interrupts are the same one."""


class Interrupt:
    """What a run does of interrupts."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """Before anything is said of it."""
        if threading.current_thread() is not threading.main_thread():
            return
        first = time.monotonic()

        def again(number: int, frame: FrameType | None) -> None:
            if time.monotonic() - first > BOUNCE:
                signal.default_int_handler(number, frame)

        def restore() -> None:
            signal.signal(signal.SIGINT, before)

        before = signal.signal(signal.SIGINT, again)
        self._config.add_cleanup(restore)


def pytest_configure(config: pytest.Config) -> None:
    """Be told of interrupts, and take a termination for one."""
    config.pluginmanager.register(Interrupt(config), "d5test-interrupt")
    alone = threading.current_thread() is threading.main_thread() and not launched()
    if alone and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        config.add_cleanup(_die_of_termination)


def _die_of_termination() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
