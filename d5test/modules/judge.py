"""`ModelNew` of a file against `Model` of a problem: is it right, by how much, and is it faster?

The reference runs here; a candidate runs in a worker of its own, which never sees what is
expected. Asked are the checks of level 0: values and gradients by bars, inputs that stay as they
are, results that outlive the next call, calls that follow their inputs. Sizes are those of the
file where the reference can run them in float64, and smaller ones. Values are those of
`get_inputs()`, and normal ones: a candidate that is right on `torch.rand` alone is wrong.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import blake2b
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from d5test.arguments import Mistake
from d5test.backends.base import Unsupported
from d5test.backends.torch import Torch
from d5test.case import Array, Case, Operator, Tensor, dtype_of
from d5test.checks import CHECKS
from d5test.checks.memory import bytes_available
from d5test.client.client import WorkerClient
from d5test.client.messages import (
    FAILURES,
    Advice,
    BackendFailed,
    Crashed,
    Feed,
    Hung,
    Raised,
)
from d5test.client.registry import Spec
from d5test.modules.candidate import JOB, NAME
from d5test.modules.problem import LARGE, SEED, SMALL, Problem
from d5test.modules.reference import (
    TorchReference,
    function_of,
    require_repeatable,
    results_of,
)
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Bounds
from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import Fault
from d5test.outcome.tally import Inapplicable, LeftToOthers, add_shares, rarely_judged

RIGHT, WRONG, UNTESTED = "right", "wrong", "untested"
OWN = ("own",)
"""The regime of what `get_inputs()` draws."""
NORMAL, LARGE_VALUES = ("normal",), ("scaled", 8)
"""Other regimes: exponentials of the second overflow where no maximum is subtracted."""
FURTHER = 100
"""What is added to the seed of an input that changes alone."""
SEEDS = 3
"""Sets of inputs that `get_inputs()` draws, for the values alone."""
TIMEOUT = 300.0
"""Seconds for one request: kernels are compiled in the first."""
COPIES, MEMORY, CPU_WORK = 64, 1 << 33, 10**11
"""How many times the elements of a pass fit into what memory there is, when it is timed: three
processes have three sets of them each, and what is computed on the way. Bytes of a system that
does not say how many it has. Operations of a pass on a CPU: a second or so."""
FAILED = (Raised, BackendFailed, *FAILURES)
"""What is raised where a module cannot be made or called."""
WORKER = "d5test.modules.candidate"
TARGET = f"{WORKER}:Candidate"
ADVICE = Advice(
    unreadable="what it returned cannot be read",
    refusing="",
    given="",
    stopped="",
    flushes="",
    rounded="",
    looser="",
    fewer="",
)


@dataclass(frozen=True, repr=False)
class Drawn(Tensor):
    """An input that a problem draws, or a parameter, which no seed changes."""

    source: Callable[[int], Any] = field(default=lambda seed: None, compare=False)

    def array(self, seed: int, position: int) -> Array:
        """See `Tensor.array`."""
        if self.values[0] in ("own", "constant"):
            return np.asarray(self.source(seed))
        return super().array(seed, position)

    def __repr__(self) -> str:
        return repr(Tensor(self.shape, self.dtype, self.values))


class Setting:
    """A problem at some sizes in a dtype: the operator, and its inputs by regime.

    Raises `Mistake` where the reference cannot run, or draws random numbers; where it is `judged`
    by, and not only called.
    """

    def __init__(
        self, problem: Problem, dtype: str, *, judged: bool = True, uneven: bool = False
    ) -> None:
        self.problem, self.dtype, self._uneven = problem, dtype, uneven
        model = problem.model().to(getattr(torch, dtype))
        self._state = model.state_dict()
        self.even = [name for name, x in self._state.items() if _even(x)]
        """Parameters and statistics that begin as one number everywhere: scales, offsets."""
        if uneven:
            for k, name in enumerate(self.even):
                self._state[name] = _uneven(self._state[name], SEED + k)
            model.load_state_dict(self._state)
        function, self._parameters = function_of(model)
        inputs = self._inputs(0)
        _require_plain(inputs, problem.path)
        self._tensors = [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor)]
        others = [None if i in self._tensors else x for i, x in enumerate(inputs)]
        self.others = others
        self.drawn = self._tensors if len(self._tensors) > 1 else []
        """The inputs of which each may change alone."""

        def call(*arrays: Any) -> Any:
            every = list(others)
            for i, x in zip(self._tensors, arrays, strict=False):
                every[i] = x
            return function(*every, *arrays[len(self._tensors) :])

        known: dict[bytes, Any] = {}
        members: dict[str, Any] = {"function": staticmethod(call), "known": known}
        self.operator = type(NAME, (Remembered,), members)()
        self.without_gradient = ""
        if judged:
            self._require_sense(call)
            self.without_gradient = self._why_no_gradient()
        if self.without_gradient:
            members["backward"] = Operator.backward
            self.operator = type(NAME, (Remembered,), members)()

    def _require_sense(self, call: Callable[..., Any]) -> None:
        """Raise `Mistake` if the reference cannot run in float64, or draws random numbers."""
        try:
            require_repeatable(call, self.case().arrays())
            shapes = [
                [y.shape for y in self.operator(*self.case(OWN, k).arrays())] for k in (0, 1)
            ]
            if shapes[0] != shapes[1]:
                raise Mistake("the shapes of its results depend on what its inputs hold")
        except Exception as error:
            kind = "" if isinstance(error, Mistake) else f"{type(error).__name__}: "
            raise Mistake(f"{self.problem.path}: in float64: {kind}{error}") from error

    def _inputs(self, seed: int) -> list[Any]:
        dtype = getattr(torch, self.dtype)
        return [
            x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x
            for x in self.problem.inputs(seed)
        ]

    def _drawn(self, position: int, seed: int, later: int = 0) -> Array:
        return _array(self._inputs(seed + later)[position])

    def case(
        self, values: tuple[Any, ...] = OWN, seed: int = 0, changed: int | None = None
    ) -> Case:
        """The inputs of one call; the parameters are the last of them.

        With `changed` this input alone is what another seed draws.
        """
        tensors: list[Tensor] = []
        for i, x in enumerate(self._inputs(0)):
            if i in self._tensors:
                own = values if x.is_floating_point() else OWN
                name = str(x.dtype).removeprefix("torch.")
                drawn = partial(self._drawn, i, later=FURTHER * (i == changed))
                tensors.append(Drawn(tuple(x.shape), name, own, source=drawn))
        for name, p in self._parameters.items():
            array = p.astype(dtype_of(self.dtype))
            fixed = partial(_whatever_the_seed, array)
            values = ("constant", name, *(("uneven",) if self._uneven else ()))
            tensors.append(Drawn(p.shape, self.dtype, values, source=fixed))
        return Case(self.operator, tuple(tensors), seed)

    @cached_property
    def redrawn(self) -> Setting | None:
        """The same with such parameters drawn; `None` where none is, or the reference refuses."""
        if not self.even:
            return None
        try:
            redrawn = Setting(self.problem, self.dtype, uneven=True)
        except Mistake:
            return None
        return redrawn if redrawn.takes(OWN) else None

    def job(self, path: Path, name: str, *, compiled: bool = False) -> dict[str, Any]:
        """What a worker has to know to make the module of a file."""
        return {
            "path": str(path),
            "name": name,
            "init": self.problem.init_inputs(),
            "inputs": self.others,
            "seed": SEED,
            "state": self._state,
            "dtype": self.dtype,
            "parameters": {name: torch.Size(p.shape) for name, p in self._parameters.items()},
            "compile": compiled,
            "differentiable": not self.without_gradient,
        }

    def _why_no_gradient(self) -> str:
        """Why the reference has none, as where it writes to what its gradient needs."""
        case = self.case()
        arrays = case.arrays()
        try:
            self.operator.vjp(case.upstream(self.operator(*arrays)), arrays)
        except RuntimeError as error:
            return f"the reference has no gradient: {error}".partition(": [")[0]
        return ""

    def require_stateless(self) -> None:
        """Raise `Mistake` if a call of the reference depends on those before it."""
        model, inputs = self.problem.model(), self.problem.inputs(0)
        with torch.no_grad():
            pairs = zip(*(results_of(model(*inputs)) for _ in range(2)), strict=True)
        if not all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs):
            raise Mistake(
                f"{self.problem.path}: the reference returns something else when it is called "
                "again: it keeps a state, by which nobody can be judged"
            )

    def takes(self, values: tuple[Any, ...]) -> bool:
        """Whether the reference is finite on such numbers: a logarithm is not on normal ones."""
        arrays = self.case(values).arrays()
        return all(np.isfinite(y).all() for y in self.operator(*arrays) if y.dtype.kind == "f")


class Bench:
    """A worker in which one module after the other is made, each in a process that is fresh."""

    def __init__(self, device: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._job = Path(self._folder.name) / "job.pt"
        environment = {JOB: str(self._job)}
        self._client = WorkerClient(
            Spec("a candidate", TARGET), device, timeout=TIMEOUT, environment=environment
        )
        self._client.advice = ADVICE

    def client(
        self, setting: Setting, path: Path, name: str, *, compiled: bool = False
    ) -> WorkerClient:
        """The module of a file, made. Raises what making it raises."""
        torch.save(setting.job(path, name, compiled=compiled), self._job)
        self._client.renew()
        self._client.named(f"{path.name}:{name} with torch")
        self._client.ask("describe")
        return self._client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()
        self._folder.cleanup()


class Remembered(TorchReference):
    """A reference whose bars are computed once for each set of inputs, for all candidates."""

    known: ClassVar[dict[bytes, Any]]

    def bounds(
        self, arrays: Sequence[Any], grads: Sequence[Any] | None, arithmetic: Arithmetic
    ) -> Bounds:
        """See `Operator.bounds`."""
        hashed = blake2b(repr((arithmetic.name, arithmetic.primitive, arithmetic.sums)).encode())
        for x in (*arrays, *(("grads", *grads) if grads is not None else ())):
            hashed.update(x.tobytes() if isinstance(x, np.ndarray) else repr(x).encode())
        key = hashed.digest()
        if key not in self.known:
            self.known[key] = super().bounds(arrays, grads, arithmetic)
        bounds: Bounds = self.known[key]
        return bounds


def _array(x: torch.Tensor) -> Array:
    """A tensor as an array; bfloat16 as ml_dtypes has it."""
    x = x.detach()
    array: Array = x.view(torch.uint16).numpy() if x.dtype == torch.bfloat16 else x.numpy()
    return array.view(dtype_of("bfloat16")) if x.dtype == torch.bfloat16 else array


def _even(x: torch.Tensor) -> bool:
    """Whether a tensor is one finite number everywhere."""
    return bool(
        x.is_floating_point() and x.numel() and x.isfinite().all() and (x == x.max()).all()
    )


def _uneven(x: torch.Tensor, seed: int) -> torch.Tensor:
    """Other numbers of the same sign, by up to a half apart; of zero, from -1/2 to 1/2."""
    apart = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)).to(x.dtype) - 0.5
    return torch.where(x == 0, apart, x * (1 + apart))


def _whatever_the_seed(array: Array, seed: int) -> Array:
    return array


@dataclass
class Verdict:
    """What is said of a candidate.

    ratio    the largest error / bar among the right results
    shares   the sum of the shares of elements that were judged, over the calls that were
    each     the same of each output and gradient, and its calls
    gradient whether gradients were judged
    notes    what a reader has to know of it, and is no fault
    own      whether it is upon the problem's own module
    """

    candidate: str
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ratio: float = 0.0
    judged: int = 0
    shares: float = 0.0
    each: dict[str, list[float]] = field(default_factory=dict)
    telling: int = 0
    gradient: bool = False
    broken: str = ""
    own: bool = False
    times: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """`right`, `wrong` or `untested`."""
        if self.faults or self.broken:
            return WRONG
        return RIGHT if self.telling and not self.rarely else UNTESTED

    @property
    def rarely(self) -> str:
        """The outputs and gradients of which too little was judged, in words."""
        return rarely_judged(self.each)

    def excuses(self, fault: Fault) -> bool:
        """Whether this one has the same fault on the same inputs, and its error is no smaller."""
        alike = (fault.check, fault.kind, repr(fault.case))
        return any(
            own.judgement is None or fault.judgement is None
            or own.judgement.ratio >= fault.judgement.ratio
            for own in self.faults
            if (own.check, own.kind, repr(own.case)) == alike
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Builtins alone."""
        return {
            "candidate": self.candidate,
            "status": self.status,
            "largest error / bar": self.ratio,
            "calls judged": self.judged,
            "share judged": self.shares / max(self.judged, 1),
            "judged too rarely": self.rarely,
            "calls that would expose a wrong result": self.telling,
            "gradient judged": self.gradient,
            "faults": [
                {"check": f.check, "kind": f.kind, "headline": f.headline, **f.details}
                for f in self.faults
            ],
            "broken": self.broken,
            "notes": self.notes,
            "times": dict(self.times),
        }


def _require_plain(inputs: Sequence[Any], path: Path) -> None:
    """Raise `Mistake` unless the inputs are real tensors, perhaps beside plain values."""
    if any(isinstance(x, list | tuple | dict | set) for x in inputs):
        raise Mistake(f"{path}: get_inputs() returns a nested list: give the tensors one by one")
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    if not tensors:
        raise Mistake(f"{path}: get_inputs() returns no tensor: there is nothing to vary")
    if any(x.is_complex() for x in tensors):
        raise Mistake(f"{path}: get_inputs() returns complex numbers, of which nothing is judged")


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
        from d5test.modules.timing import times  # which times a `Setting`

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
