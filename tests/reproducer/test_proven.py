"""A reproducer is run before it is promised, and makes other calls first where that is needed."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from d5test.case import Case, Tensor
from d5test.checks import CHECKS, Fault
from d5test.checks.inquiry import Inquiry
from d5test.client.history import Before
from d5test.exploration.draws import seed_of
from d5test.exploration.explore import Exploration
from d5test.fixtures.conclude import reproducer_of
from d5test.outcome.fault import Evidence
from d5test.outcome.tally import Tally
from d5test.reference.operators import OPERATORS
from d5test.reproducer import prove, proven
from d5test.reproducer.proven import (
    AFTER,
    AGAIN,
    ALONE,
    EARLIER,
    FATAL,
    FEW,
    NEVER,
    RAISED,
    SLOW,
    UNTRIED,
    histories,
)
from d5test.strategies.sizes import Seed
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
        (NINTH, 9, AGAIN.format(9), 1),
    ],
)
def test_what_is_said_is_what_it_shows(
    wrong: str, calls: int, said: str, status: int, stranger: Any, tmp_path: Path
) -> None:
    client = stranger(wrong)
    fault = later_fault(client, "forward", calls)
    path, told = prove(fault, client, tmp_path / "out")
    assert told == said
    assert bool(re.search(r"seen  +only", path.read_text())) == bool(said)
    assert said in path.read_text()
    done = run(path)
    assert done.returncode == status, done.stdout + done.stderr
    assert list((tmp_path / "out").iterdir()) == [path]
    _, note = reproducer_of(fault, client.about, tmp_path / "out", client)
    assert note.endswith(f"{path}\n    {said}" if said else str(path))


def test_a_claim_on_all_calls_is_not_preceded(stranger: Any, tmp_path: Path) -> None:
    client = stranger("return good + np.float32(STATE['calls'] == 2)")
    fault = fault_of(client, "determinism")
    assert not list(histories(fault, SimpleNamespace(mutable=True, implementation="")))
    path, told = prove(fault, client, tmp_path)
    assert (told, run(path).returncode) == ("", 1)
    text = (tmp_path / "stranger.py").read_text()
    (tmp_path / "stranger.py").write_text(text.replace("STATE['calls'] == 2", "False"))
    client.close()
    mended = stranger("return good")
    assert prove(fault, mended, tmp_path)[1] == ALONE


DIES = "os.kill(os.getpid(), signal.SIGSEGV)"
HANGS = "time.sleep(1e6)"
SIXTH = "if STATE['calls'] == 6: {}\n    return good"


@pytest.mark.parametrize(
    ("wrong", "said", "status"),
    [
        (f"{DIES}; return good", "", 1),
        (f"{HANGS}; return good", "", 1),
        (SIXTH.format(DIES), AGAIN.format(FEW), 1),
        (SIXTH.format(HANGS), AGAIN.format(FEW), 1),
        ("return good", FATAL.format(FEW), 0),
        ("return good", SLOW.format(3.0, FEW), 0),
    ],
)
def test_a_death_or_a_hang_is_tried_beside_the_worker(
    wrong: str,
    said: str,
    status: int,
    stranger: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proven, "HANGS", 3.0)
    client = stranger(wrong)
    inquiry = Inquiry("forward", SimpleNamespace(about=client.about), case())
    kind = "hang" if HANGS in wrong or "slow" in said else "crash"
    fault = inquiry.subject.fault(kind, "no answer", Evidence((inquiry.feed(),), "returns"))
    worker = client.about.pid
    path, told = prove(fault, client, tmp_path / "out")
    assert told == said
    assert client.about.pid == worker
    assert list((tmp_path / "out").iterdir()) == [path]
    path.write_text(path.read_text().replace("SECONDS = 60", "SECONDS = 2"))
    assert run(path).returncode == status


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


def test_one_that_imports_what_lies_beside_the_backend_is_run_alone(
    stranger: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker has imported it already, so that it would not notice where Python looks."""
    (tmp_path / "beside.py").write_text("def more(x):\n    return x + 1\n")
    client = stranger("import beside; return beside.more(good)")
    fault = fault_of(client, "forward")
    path, told = prove(fault, client, tmp_path / "out")
    assert told == ""
    assert run(path).returncode == 1
    monkeypatch.setattr("d5test.reproducer.compose.searched", lambda _: "")
    told = prove(fault, client, tmp_path / "out")[1]
    assert told.startswith(f"{UNTRIED}: ")
    assert "No module named 'beside'" in told


def explored(client: Any, examples: int) -> Fault:
    """The first fault of the forward of Add, as a run draws its cases."""
    cell = Exploration(
        client, CHECKS["forward"], OPERATORS["Add"], "float32",
        Tally("stranger", "forward", "Add", "float32"), examples, lambda case: False,
    )  # fmt: skip
    fault, *_ = cell.faults(Seed(seed_of("forward")))
    return fault


@pytest.mark.nightly
def test_a_counter_is_shown_by_as_few_calls_as_it_takes(stranger: Any, tmp_path: Path) -> None:
    client = stranger("return np.asarray(good + np.float32(STATE['calls'] % 200 == 0))")
    fault = explored(client, 200)
    assert fault.before.calls >= 200
    path, told = prove(fault, client, tmp_path)
    assert told == AGAIN.format(200)
    assert run(path).returncode == 1
    assert "] * 200" in path.read_text()


WIDER = """
    STATE["most"] = max(STATE.get("most", 0), x.size)
    return good + (x.size == 6 and STATE["most"] > 6)"""


def test_earlier_calls_are_made_as_far_as_they_are_needed(stranger: Any, tmp_path: Path) -> None:
    client = stranger(WIDER)
    for seed in range(3):
        CHECKS["forward"].run(client, Case(OPERATORS["Add"](), (Tensor((7, 3)),) * 2, seed))
        CHECKS["forward"].run(client, Case(OPERATORS["Add"](), (Tensor((1, 3)),) * 2, seed))
    fault = fault_of(client, "forward")
    fault.before = client.history.before(fault.case.op, fault.case.form)
    path, told = prove(fault, client, tmp_path)
    assert told == EARLIER.format(2)
    assert run(path).returncode == 1


def test_what_an_exception_left_is_said_to_be_more_than_calls_show(
    stranger: Any, tmp_path: Path
) -> None:
    text = """
    if x.shape != y.shape:
        STATE["broken"] = 1
        raise ValueError("no such shapes")
    return good + STATE.get("broken", 0)"""
    client = stranger(text)
    with pytest.raises(Fault):
        CHECKS["forward"].run(client, Case(OPERATORS["Add"](), (Tensor((2, 3)), Tensor((3,)))))
    fault = fault_of(client, "forward")
    fault.before = client.history.before(fault.case.op, fault.case.form)
    path, told = prove(fault, client, tmp_path)
    assert told == NEVER + RAISED.format("ValueError in call: no such shapes")
    assert run(path).returncode == 0


def test_a_fresh_worker_has_no_history(stranger: Any) -> None:
    client = stranger("return good")
    CHECKS["forward"].run(client, case(1))
    assert client.history.before(OPERATORS["Add"](), "").calls == 1
    client.renew()
    assert client.history.before(OPERATORS["Add"](), "") == Before()
