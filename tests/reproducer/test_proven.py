"""A reproducer is run before it is promised, and makes other calls first where that is needed."""

import re
from pathlib import Path
from typing import Any

import pytest

from d5test.checks import CHECKS, Fault
from d5test.fixtures.conclude import reproducer_of
from d5test.reproducer import prove
from d5test.reproducer.proven import AFTER, ALONE, NEVER, UNTRIED, preceded
from tests.reproducer.strangers import case, fault_of, run

ALWAYS = "return good + 1"
BY_SHAPE = "return STATE.setdefault(x.shape, good)"
BY_ADDRESS = "return STATE.setdefault((x.ctypes.data, y.ctypes.data), good)"
IN_FRAMEWORK = "return np.__dict__.setdefault('kept', {}).setdefault(x.shape, good)"
NINTH = "return good + (STATE['calls'] == 9)"


def later_fault(client: Any, check: str, calls: int) -> Fault:
    """Of the last of so many calls on data of their own."""
    for seed in range(1, calls):
        CHECKS[check].run(client, case(seed))
    return fault_of(client, check)


@pytest.mark.parametrize(
    ("wrong", "calls", "said", "status"),
    [
        (ALWAYS, 1, "", 1),
        (BY_SHAPE, 2, AFTER, 1),
        (BY_ADDRESS, 2, AFTER, 1),
        (IN_FRAMEWORK, 2, AFTER, 1),
        (NINTH, 9, NEVER, 0),
    ],
)
def test_what_is_said_is_what_it_shows(
    wrong: str, calls: int, said: str, status: int, stranger: Any, tmp_path: Path
) -> None:
    client = stranger(wrong)
    fault = later_fault(client, "forward", calls)
    path, told = prove(fault, client, tmp_path / "out")
    assert told == said
    assert bool(re.search(f"seen +{AFTER}", path.read_text())) == (said == AFTER)
    done = run(path)
    assert done.returncode == status, done.stdout + done.stderr
    assert list((tmp_path / "out").iterdir()) == [path]
    _, note = reproducer_of(fault, client.about, tmp_path / "out", client)
    assert note.endswith(f"{path}\n    {said}" if said else str(path))


def test_a_claim_on_all_calls_is_not_preceded(stranger: Any, tmp_path: Path) -> None:
    client = stranger("return good + np.float32(STATE['calls'] == 2)")
    fault = fault_of(client, "determinism")
    assert preceded(fault, mutable=True) is None
    path, told = prove(fault, client, tmp_path)
    assert (told, run(path).returncode) == ("", 1)
    text = (tmp_path / "stranger.py").read_text()
    (tmp_path / "stranger.py").write_text(text.replace("STATE['calls'] == 2", "False"))
    client.close()
    mended = stranger("return good")
    assert prove(fault, mended, tmp_path)[1] == ALONE


def test_a_crash_is_not_run(stranger: Any, tmp_path: Path) -> None:
    client = stranger("os.kill(os.getpid(), signal.SIGSEGV); return good")
    fault = fault_of(client, "forward")
    worker = client.about.pid
    assert prove(fault, client, tmp_path)[1] == ""
    assert client.about.pid == worker


def test_a_backend_in_this_process_is_not_run(stranger: Any, tmp_path: Path) -> None:
    client = stranger(BY_SHAPE)
    fault = later_fault(client, "forward", 2)
    client.renew = lambda: False
    assert prove(fault, client, tmp_path)[1] == ""


def test_one_that_cannot_be_tried_is_said_to_be_untried(stranger: Any, tmp_path: Path) -> None:
    client = stranger(ALWAYS)
    fault = fault_of(client, "forward")
    text = (tmp_path / "stranger.py").read_text()
    text = text.replace("import os", "import no_such_module, os")
    text = text.replace("good = same(x)", "good = no_such_module.f(x)")
    (tmp_path / "stranger.py").write_text(text)
    said = prove(fault, client, tmp_path / "out")[1]
    assert said == f"{UNTRIED}: ModuleNotFoundError: No module named 'no_such_module'"
