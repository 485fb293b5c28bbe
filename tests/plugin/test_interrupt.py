"""A run that is interrupted ends with a summary: by Ctrl-C, pressed twice too, or by SIGTERM."""

import re

import pytest

from tests.plugin.conftest import Suite

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


def test_a_terminated_run_says_what_it_found(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(
        "import os, signal\n"
        "def test_before():\n    assert 1 == 2\n"
        "def test_terminated():\n    os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    result = pytester.runpytest_subprocess("-p", "d5test.plugin.interrupt", str(path))
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*assert 1 == 2*", "*1 failed in*"])


def test_a_run_in_this_process_is_interrupted_within_a_call(suite: Suite) -> None:
    ran = suite("Interrupted", "--check=forward", "--operator=Relu,Softmax", "--in-process")
    assert ran.rc == pytest.ExitCode.INTERRUPTED
    assert "FAILED" not in ran.text
    said = r"INTERRUPTED after 2 of \d tests: \d\d cases were right, none was wrong so far"
    assert re.search(said, ran.text)
    assert "PASSED" not in ran.text
