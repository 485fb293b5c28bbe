"""Whatever the framework does, the next request works and nothing is left behind."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5test.client.client import WorkerClient
from d5test.client.messages import BackendFailed, Crashed, Feed, Hung, Raised
from d5test.reference.operators import Mul

HERE = Path(__file__).parent
X = np.arange(1, 4, dtype=np.float32)


def lives(process: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def gone(*processes: int, within: float = 5.0) -> bool:
    deadline = time.monotonic() + within
    while any(lives(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def children() -> set[int]:
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return {int(child) for child in text.split()}


@pytest.fixture(params=[True, False], ids=["fork", "no fork"])
def wrong(request: Any, start: Any) -> Any:
    return start("wrong_calls", "Wrong", fork=request.param, timeout=1.5)


def test_what_is_left_on_another_stream_is_not_waited_for(start: Any) -> None:
    (result,) = start("wrong_calls", "OtherStream").run(Mul(), [Feed((X, X))])
    assert not result.outputs[0].any()


@pytest.mark.parametrize(
    ("deed", "how"),
    [
        ("abort", "SIGABRT"),
        ("segfault", "SIGSEGV"),
        ("exit", "exit status 3"),
        ("children", "SIGABRT"),
    ],
)
def test_a_crash_is_told_and_survived(wrong: Any, do: Any, deed: str, how: str) -> None:
    with pytest.raises(Crashed) as caught:
        do(wrong, deed)
    assert caught.value.how == how
    if how.startswith("SIG"):
        assert "Fatal Python error" in caught.value.tail
        assert "wrong_calls.py" in caught.value.tail
    assert do(wrong, "print").outputs[0].tolist() == [2, 3, 4]


def test_what_a_crashed_worker_had_started_ends_with_it(wrong: Any, do: Any) -> None:
    with pytest.raises(Crashed) as caught:
        do(wrong, "children")
    (child,) = re.findall(r"^child (\d+)$", caught.value.tail, re.MULTILINE)
    assert gone(int(child))


def printed(client: Any) -> list[int]:
    """The children that the worker's log names."""
    return list(map(int, re.findall(r"^child (\d+)$", client._process._log.tail(), re.MULTILINE)))


@pytest.mark.parametrize("end", ["close", "end_worker"])
def test_sessions_of_a_childs_own_end_too(wrong: Any, do: Any, end: str) -> None:
    do(wrong, "sessions")
    started = printed(wrong)
    assert len(started) == 2
    assert all(map(lives, started))
    (wrong.close if end == "close" else wrong._process.end_worker)()
    assert gone(*started)


def test_sessions_of_a_crashed_worker_end_too(start: Any, do: Any) -> None:
    client = start("wrong_calls", "Wrong")
    with pytest.raises(Crashed) as caught:
        do(client, "sessions, abort")
    started = [
        int(child) for child in re.findall(r"^child (\d+)$", caught.value.tail, re.MULTILINE)
    ]
    assert len(started) == 2
    assert gone(*started)
    assert do(client, "print").outputs[0].tolist() == [2, 3, 4]


@pytest.mark.parametrize("fork", [True, False])
@pytest.mark.parametrize("written", ["abc", "None", "an answer"])
def test_stray_bytes_of_an_import_are_one_line(
    start: Any, monkeypatch: pytest.MonkeyPatch, written: str, fork: bool
) -> None:
    """Nothing is waited for: the import itself has 300 s."""
    monkeypatch.setenv("D5TEST_WRITTEN", written)
    with pytest.raises(BackendFailed, match="wrote into our connection: it ") as caught:
        start("wrong_bytes", fork=fork).about  # noqa: B018
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("deed", "line"), [("sleep", "in <lambda>"), ("loop", "in <lambda>")])
def test_a_hang_is_told_with_its_stack(wrong: Any, do: Any, deed: str, line: str) -> None:
    worker = wrong.about.pid
    with pytest.raises(Hung) as caught:
        do(wrong, deed)
    assert caught.value.seconds == 1.5
    assert "wrong_calls.py" in caught.value.stack
    assert line in caught.value.stack
    assert gone(worker)
    assert do(wrong, "print").outputs[0].tolist() == [2, 3, 4]


def test_a_worker_that_closes_its_connection_is_ended(start: Any, do: Any) -> None:
    client = start("wrong_calls", "Wrong")
    worker = client.about.pid
    with pytest.raises(Crashed, match="closed its connection"):
        do(client, "close")
    assert gone(worker)
    assert do(client, "print").outputs[0].tolist() == [2, 3, 4]


def test_what_is_printed_does_not_disturb_and_is_shown(wrong: Any, do: Any) -> None:
    assert do(wrong, "print").outputs[0].tolist() == [2, 3, 4]
    with pytest.raises(Crashed) as caught:
        do(wrong, "exit")
    assert "more garbage 1999" in caught.value.tail
    assert len(caught.value.tail.splitlines()) <= 40


def test_an_exception_does_not_restart(wrong: Any, do: Any) -> None:
    worker = wrong.about.pid
    with pytest.raises(Raised):
        do(wrong, "raise")
    wrong._about = None
    assert wrong.about.pid == worker


@pytest.mark.parametrize("fork", [True, False])
def test_an_import_that_fails_is_one_line(start: Any, ops: Any, fork: bool) -> None:
    client = start("wrong_import", fork=fork)
    for _ in range(2):
        with pytest.raises(BackendFailed) as caught:
            client.run(ops.Scale(), [Feed((X,))])
    text = str(caught.value)
    assert text.count("\n") == 0
    assert "ModuleNotFoundError: No module named 'a_framework_that_nobody_wrote'" in text
    assert sys.executable in text
    assert "wrong_import.py" in caught.value.detail


@pytest.mark.parametrize("fork", [True, False])
def test_a_death_while_importing_is_one_line(start: Any, fork: bool) -> None:
    with pytest.raises(BackendFailed, match=r"died while .* imported it: SIGABRT$") as caught:
        start("wrong_death", fork=fork).about  # noqa: B018
    assert "wrong_death.py" in caught.value.detail


def test_an_interpreter_that_is_too_old(tmp_path: Path) -> None:
    """This one, which says that it is another."""
    old = tmp_path / "python"
    old.write_text(
        f"#!{sys.executable}\n"
        "import runpy, sys\n"
        "sys.version_info, sys.argv = (3, 9, 18), sys.argv[2:]  # without -u\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    old.chmod(0o755)
    said = r"needs Python 3\.10 or later, this is 3\.9$"
    with (
        WorkerClient(f"{HERE / 'tiny.py'}:Tiny@{old}") as client,
        pytest.raises(BackendFailed, match=said),
    ):
        client.about  # noqa: B018


def test_an_import_that_does_not_end(start: Any) -> None:
    client = start("wrong_sleep", importing=1.0)
    with pytest.raises(BackendFailed, match=r"was not imported by .* within 1 s") as caught:
        client.about  # noqa: B018
    assert "wrong_sleep.py" in caught.value.detail
    assert not children()


def test_a_class_that_is_not_there(start: Any) -> None:
    with pytest.raises(BackendFailed, match=r"tiny.py has no Tinny; did you mean Tiny\?"):
        start("tiny", "Tinny").about  # noqa: B018


def test_a_fork_server_that_was_killed_is_replaced(start: Any, do: Any) -> None:
    client = start("wrong_calls", "Wrong")
    worker = client.about.pid
    (server,) = children()
    os.kill(server, signal.SIGKILL)
    assert gone(worker)  # it must not outlive its server
    with pytest.raises(Crashed):
        do(client, "print")
    assert do(client, "print").outputs[0].tolist() == [2, 3, 4]


def test_an_interrupted_request_meets_no_later_one(start: Any, do: Any) -> None:
    client = start("wrong_calls", "Wrong")
    worker = client.about.pid

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            do(client, "sleep")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert gone(worker)
    assert do(client, "print").outputs[0].tolist() == [2, 3, 4]


@pytest.mark.parametrize("fork", [True, False])
def test_close_leaves_no_process_and_no_file(fork: bool) -> None:
    opened = len(os.listdir("/proc/self/fd"))
    before = children()
    client = WorkerClient(f"{HERE / 'tiny.py'}:Tiny", fork=fork)
    processes = {client.about.pid, *(children() - before)}
    client.close()
    client.close()
    assert gone(*processes)
    assert children() == before
    assert len(os.listdir("/proc/self/fd")) == opened
    with pytest.raises(BackendFailed, match="was closed"):
        client.compilations()


def test_a_client_that_is_forgotten_ends_its_processes(do: Any) -> None:
    client = WorkerClient(f"{HERE / 'tiny.py'}:Tiny")
    worker = client.about.pid
    del client
    assert gone(worker)
    assert not children()


PARENT = """
import sys, time
from d5test.client.client import WorkerClient
client = WorkerClient(sys.argv[1], fork=sys.argv[2] == "True")
print(client.about.pid, client._process._server.pid, flush=True)
if sys.argv[3] == "hang":
    client.invoke("wrong_calls:hang")
time.sleep(60)
"""


@pytest.mark.parametrize("state", ["idle", "hang"])
@pytest.mark.parametrize("fork", [True, False])
def test_all_end_when_the_parent_is_killed(fork: bool, state: str) -> None:
    target = f"{HERE / 'wrong_calls.py'}:Wrong"
    command = [sys.executable, "-c", PARENT, target, str(fork), state]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=HERE.parents[1], text=True
    ) as parent:
        assert parent.stdout is not None
        processes = [int(process) for process in parent.stdout.readline().split()]
        assert len(processes) == 2
        assert all(lives(process) for process in processes)
        time.sleep(0.2)
        parent.kill()
    assert gone(*processes)


def test_threads_are_pinned_before_the_import(start: Any, do: Any) -> None:
    client = start("wrong_calls", "Wrong", threads=3)
    assert do(client, "threads").outputs[0].tolist() == [3]
    assert do(client, "modules").outputs[0].tolist() == [0]  # nothing of ours that is not needed


def test_another_interpreter_sees_its_own_packages(tmp_path: Path, ops: Any) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "v"], check=True)
    python = tmp_path / "v" / "bin" / "python"
    tiny = f"{HERE / 'tiny.py'}:Tiny@{python}"
    with (
        WorkerClient(tiny) as client,
        pytest.raises(BackendFailed, match="No module named 'numpy'") as caught,
    ):
        client.run(ops.Scale(), [Feed((X,))])
    assert str(python) in str(caught.value)
    (site,) = (tmp_path / "v" / "lib").glob("python*/site-packages")
    (site / "numpy.pth").write_text(str(Path(np.__file__).parents[1]))
    with WorkerClient(tiny) as client:
        (result,) = client.run(ops.Scale(), [Feed((X,))])
        assert client.about.executable == str(python)
    np.testing.assert_array_equal(result.outputs[0], 2 * X)


def test_an_interpreter_that_is_none(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("no program\n")
    python.chmod(0o755)
    with WorkerClient(f"{HERE / 'tiny.py'}:Tiny@{python}") as client, pytest.raises(BackendFailed):
        client.about  # noqa: B018


@pytest.mark.parametrize(("slower", "limit"), [(0, 0.2), (1e6, 1.5)])
def test_after_a_hang_an_answer_of_that_operator_has_less_time(
    slower: float, limit: float, start: Any, do: Any, ops: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("d5test.client.process.SHORTEST", 0.2)
    monkeypatch.setattr("d5test.client.process.SLOWER", slower)
    client = start("wrong_calls", "Wrong", timeout=1.5)
    do(client, "print")
    for seconds in (1.5, limit):
        with pytest.raises(Hung) as caught:
            do(client, "sleep")
        assert caught.value.seconds == seconds
    (result,) = client.run(ops.Slow(), [Feed((X,))])  # another one has all of it
    np.testing.assert_array_equal(result.outputs[0], X)
