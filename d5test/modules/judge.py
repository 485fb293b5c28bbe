"""`ModelNew` of a file against `Model` of a problem: is it right, by how much, and is it faster?

The reference runs here; a candidate runs in a worker of its own, which never sees what is
expected. Asked are the checks of level 0: values and gradients by bars, inputs that stay as they
are, results that outlive the next call, calls that follow their inputs. Sizes are those of the
file where the reference can run them in float64, and smaller ones. Values are those of
`get_inputs()`, and normal ones: a candidate that is right on `torch.rand` alone is wrong.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Self

from d5test.arguments import Mistake
from d5test.backends.base import Unsupported
from d5test.backends.torch import Torch
from d5test.case import Case, dtype_of
from d5test.checks import CHECKS
from d5test.checks.memory import bytes_available
from d5test.client.client import WorkerClient
from d5test.client.messages import (
    BackendFailed,
    Crashed,
    Feed,
    Hung,
    Raised,
)
from d5test.modules.bench import FAILED, WORKER, Bench
from d5test.modules.problem import LARGE, SEED, SMALL, Problem
from d5test.modules.setting import OWN, Setting
from d5test.modules.timing import times
from d5test.modules.verdict import Verdict
from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import Fault
from d5test.outcome.tally import Inapplicable, LeftToOthers, add_shares

NORMAL, LARGE_VALUES = ("normal",), ("scaled", 8)
"""Other regimes: exponentials of the second overflow where no maximum is subtracted."""
SEEDS = 3
"""Sets of inputs that `get_inputs()` draws, for the values alone."""
COPIES, MEMORY, CPU_WORK = 64, 1 << 33, 10**11
"""How many times the elements of a pass fit into what memory there is, when it is timed: three
processes have three sets of them each, and what is computed on the way. Bytes of a system that
does not say how many it has. Operations of a pass on a CPU: a second or so."""


def _in_words(error: Exception) -> str:
    """What came of a worker that did not answer."""
    if isinstance(error, Crashed):
        return f"the process died: {error}"
    return f"no answer: {error}" if isinstance(error, Hung) else str(error)


class Judge:
    """A problem, ready to judge candidates. Raises `Mistake` for a file that is no problem."""

    def __init__(self, path: Path, dtype: str = "float32", device: str = "cpu") -> None:
        if not Torch.has(device):
            raise Mistake(f"no device {device!r} here; there are: {', '.join(Torch.devices())}")
        self.problem, self.dtype, self.device = Problem(path), dtype, device
        small = self.problem.smaller(SMALL)
        large = self.problem.smaller(LARGE)
        if large.cost() == small.cost() and (another := small.other()) is not None:
            large = another if another.cost().elements > small.cost().elements else small
            small = small if large is another else another
        self.small, self.large = Setting(small, dtype), Setting(large, dtype)
        odd = large.odd()
        self.odd = None if odd is None else Setting(odd, dtype)
        """Sizes that no tile divides, where the problem has any."""
        self.small.require_stateless()
        self._bench = Bench(device)
        self.own = large.cost() == self.problem.cost() or small.cost() == self.problem.cost()

    def judge(self, path: Path, name: str = "ModelNew") -> Verdict:
        """The verdict upon one file.

        A candidate that raises at some sizes is made for others: it is asked all at those.
        """
        _ = self._of_reference
        return self._judged(path, name)

    @cached_property
    def _of_reference(self) -> Verdict:
        """The verdict upon the problem's own module: of what it does nobody else is accused."""
        return self._judged(self.problem.path, "Model", own=True)

    def _judged(self, path: Path, name: str, *, own: bool = False) -> Verdict:
        """The verdict upon one file, or upon the problem's `own` module, which is asked all."""
        verdict = Verdict(str(path), own=own)
        settings = (self.large, self.small)
        try:
            refused = {s: self._refusal(s, path, name) for s in settings}
            fitting = [s for s in settings if not refused[s]]
            if not fitting:
                self._ask_own_sizes(verdict, refused[self.large], path, name)
                return verdict
            if len(fitting) == 2:
                client = self._bench.client(self.large, path, name)
                self._ask(verdict, client, "forward", self.large.case(OWN, SEED))
            else:
                text = next(filter(None, refused.values()))
                verdict.notes.append(f"made for one set of sizes alone, at others: {text}")
            self._ask_all(verdict, self._bench.client(fitting[-1], path, name), fitting[-1])
            self._ask_redrawn(verdict, fitting[-1], path, name)
            if len(fitting) == 2:
                self._ask_odd(verdict, path, name)
        except BackendFailed as error:
            raise Mistake(str(error)) from error  # no candidate has begun
        except FAILED as error:
            verdict.broken = _in_words(error)
        return verdict

    def _ask_odd(self, verdict: Verdict, path: Path, name: str) -> None:
        """The values at sizes that no tile divides, where the candidate does not refuse them."""
        if self.odd is None or verdict.faults or verdict.broken:
            return
        if refusal := self._refusal(self.odd, path, name):
            sizes = self.odd.problem.described()
            verdict.notes.append(f"not made for sizes that no tile divides, at {sizes}: {refusal}")
            return
        client = self._bench.client(self.odd, path, name)
        self._ask(verdict, client, "forward", self.odd.case())
        if verdict.faults or verdict.broken:
            verdict.notes.append(f"at sizes that no tile divides: {self.odd.problem.described()}")

    def _refusal(self, setting: Setting, path: Path, name: str) -> str:
        """What a candidate raises when it is made and called at these sizes; empty: nothing."""
        case = setting.case()
        try:
            client = self._bench.client(setting, path, name)
            client.run(case.op, [Feed(case.arrays())])
        except Raised as error:
            made = error.where in ("making the backend", "describe")
            return f"it cannot be made: {error}" if made else f"it raises {error}"
        except Unsupported as error:
            return str(error)
        return ""

    def _ask_own_sizes(self, verdict: Verdict, refusal: str, path: Path, name: str) -> None:
        """Say what becomes of a candidate that raises wherever it is judged."""
        cost, broken = self.problem.cost(), refusal
        if not self.own and max(cost.elements, cost.largest) <= self._room:
            broken = self._refusal(self._called(self.problem), path, name)
        if broken:
            verdict.broken = broken
        else:
            verdict.notes.append(
                "made for the file's own sizes alone, at which the reference takes too much in "
                "float64: give a problem that has smaller ones"
            )

    def _called(self, problem: Problem) -> Setting:
        """At sizes at which nothing is judged."""
        setting = Setting(problem, self.dtype, judged=False)
        setting.without_gradient = self.small.without_gradient
        return setting

    @property
    def _room(self) -> int:
        """Elements of a problem that fits into what memory there is."""
        return (bytes_available() or MEMORY) // (COPIES * dtype_of(self.dtype).itemsize)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._bench.__exit__()

    def time(self, verdict: Verdict, path: Path, name: str = "ModelNew") -> None:
        """Time a file's module at the problem's own sizes, and look at what it returned then."""
        work = CPU_WORK if self.device == "cpu" else inf
        problem = self.problem.smaller(self._room, work)
        timed = times(self._called(problem), path, name, self.device)
        verdict.times = {"sizes": problem.described(), **timed.to_json()}
        if timed.wrong:
            verdict.broken = f"timed calls are wrong: {timed.wrong}"

    def _ask_all(self, verdict: Verdict, client: WorkerClient, setting: Setting) -> None:
        """All checks, at one set of sizes."""
        cases = [setting.case()]
        for seed in range(SEEDS):
            self._ask(verdict, client, "forward", replace(cases[0], seed=seed))
        for i in setting.drawn:
            self._ask(verdict, client, "forward", setting.case(changed=i))
        if setting.takes(NORMAL):
            cases.append(setting.case(NORMAL))
            self._ask(verdict, client, "forward", cases[-1])
        if setting.takes(LARGE_VALUES):
            self._ask(verdict, client, "forward", setting.case(LARGE_VALUES))
        if setting.without_gradient:
            verdict.notes.append(setting.without_gradient)
        for case in () if setting.without_gradient else cases:
            self._ask(verdict, client, "gradient", case)
        for name in ("untouched", "no_caching", "determinism"):
            self._ask(verdict, client, name, cases[-1])
        self._note_special(verdict, client, cases[0])

    def _note_special(self, verdict: Verdict, client: WorkerClient, case: Case) -> None:
        """Note what becomes of NaN and infinity if it is not what becomes of them in the problem.

        That is no fault: maxima in many languages of kernels take a NaN for the smallest number.
        """
        if verdict.faults and not verdict.own:
            return
        try:
            CHECKS["special"].run(client, case)
        except Fault as fault:
            if verdict.own:
                verdict.faults.append(fault)
            elif not self._of_reference.excuses(fault):
                verdict.notes.append(f"unlike the problem's own module: {fault.headline}")
        except (Unsupported, Inapplicable, LeftToOthers) as why:
            verdict.notes.append(f"NaN and infinity are not asked: {why}")

    def _ask_redrawn(self, verdict: Verdict, setting: Setting, path: Path, name: str) -> None:
        """Values and gradients with parameters drawn that begin as one number everywhere.

        A candidate that leaves out a scale of 1 or an offset of 0 is right until it is trained.
        """
        redrawn, names = setting.redrawn, ", ".join(setting.even)
        if not setting.even or verdict.faults or verdict.broken:
            return
        if redrawn is None:
            verdict.notes.append(f"the reference refuses other values of {names}")
            return
        client = self._bench.client(redrawn, path, name)
        if not client.invoke(f"{WORKER}:shares_state"):
            verdict.notes.append(
                f"its state is another: of {names} it has the initial values alone"
            )
            return
        for check in ("forward", "gradient")[: 1 if redrawn.without_gradient else 2]:
            self._ask(verdict, client, check, redrawn.case())
        if verdict.faults or verdict.broken:
            verdict.notes.append(f"with other values of {names}, set by load_state_dict")

    def _ask(self, verdict: Verdict, client: WorkerClient, name: str, case: Case) -> None:
        """One check on one case."""
        if name != "forward" and verdict.faults and not verdict.own:
            return  # what is wrong already has other causes
        try:
            judgement: Judgement = CHECKS[name].run(client, case)
        except Fault as fault:
            if fault.kind == "nondeterministic":
                verdict.notes.append("the same call does not give the same bits twice")
            elif not verdict.own and self._of_reference.excuses(fault):
                verdict.notes.append(f"the problem's own module is no better: {fault.headline}")
            else:
                verdict.faults.append(fault)
        except LeftToOthers as left:
            if verdict.own or not self._of_reference.broken:
                verdict.broken = f"{left.wrong}, on {left.case}"
            else:
                verdict.notes.append(f"the problem's own module is no better: {left.wrong}")
        except (Unsupported, Inapplicable) as why:
            if str(why) not in verdict.notes:
                verdict.notes.append(str(why))
        else:
            if name in ("forward", "gradient"):
                verdict.judged += 1
                verdict.shares += judgement.share
                add_shares(verdict.each, judgement)
                verdict.telling += judgement.telling and not judgement.void
                verdict.ratio = max(verdict.ratio, judgement.ratio)
                verdict.gradient |= name == "gradient"
