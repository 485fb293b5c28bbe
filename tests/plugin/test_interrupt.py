"""Ctrl-C pressed twice ends a run as if it was pressed once."""

from __future__ import annotations

import pytest

CONFTEST = """
import os, signal, time, pytest

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it

@pytest.hookimpl
def pytest_keyboard_interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.05)
"""
TEST = """
import os, signal

def test_interrupted():
    os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.parametrize("ours", [True, False])
def test_a_second_interrupt_falls_into_no_summary(pytester: pytest.Pytester, ours: bool) -> None:
    pytester.makeconftest(CONFTEST)
    path = pytester.makepyfile(TEST)
    plugins = ["-p", "d5test.plugin.interrupt"] if ours else []
    result = pytester.runpytest_subprocess(*plugins, str(path))
    whole = result.ret == pytest.ExitCode.INTERRUPTED and "Traceback" not in result.stderr.str()
    assert whole is ours
    if ours:
        result.stdout.fnmatch_lines(["*no tests ran in*"])
