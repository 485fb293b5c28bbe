"""`ModelNew` of a file as a backend of one row. It runs in a worker of its own.

The worker knows the inputs and the initial state, never what is expected. What is timed is called
here, while the clock runs where the candidate cannot reach it.
"""

import importlib.util
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from d5test.backends.base import Forms, Function, Pulled, Row, Table, Tensors, Unsupported
from d5test.backends.torch import Torch, as_tuple, pulled
from d5test.worker.bound import BadRow
from d5test.worker.wire import Bits

JOB = "D5TEST_CANDIDATE"
"""The variable that names the file with what is to be made; see `d5test.modules.bench`."""
NAME = "Model"
FORWARD_ONLY = "its results are not differentiable"
SYNCHRONIZE = torch.cuda.synchronize  # as it is before a candidate can replace it
DELAY, CYCLES = torch.cuda._sleep, 1_000_000  # noqa: SLF001 (no public kernel waits)
"""A kernel that waits, and for how long: about half a millisecond."""
COPY, MATMUL = 1 << 26, 2048
"""Bytes that are copied, and the side of a product, for the two roofs of a roofline."""


class Candidate(Torch):
    """A module of a file, with the initial state of the reference where both have the same."""

    forms = Forms()

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        job = torch.load(os.environ[JOB], weights_only=False)
        self.inputs = job["inputs"]
        """The inputs of a call: `None` for each tensor, and whatever else there is as it is."""
        self._tensors = [i for i, x in enumerate(self.inputs) if x is None]
        self._differentiable = job["differentiable"]
        self.module, self.parameters, self.shares_state = _made(job, device)
        absent = [len(self._tensors) + i for i, p in enumerate(self.parameters) if p is None]
        row = Row(
            self.late if device != "cpu" else self.call,
            stopped=tuple(absent),
            arithmetic="P",
            flushes=True,
        )
        self.rows = Table({NAME: row})  # type: ignore[misc]
        self.timed: list[tuple[Any, ...]] = []
        self.last: dict[int, list[Any]] = {}
        self.turn = 0

    def late(self, op: Any, *tensors: Any) -> tuple[Any, ...]:
        """The module's results, asked of a stream that is busy.

        What is left on another stream has no lead over whoever reads: both begin when this one is
        free. Otherwise a short kernel would be done before its result is copied.
        """
        with torch.cuda.device(self.device):
            DELAY(CYCLES)
        return self.call(op, *tensors)

    def call(self, _: Any, *tensors: Any) -> tuple[Any, ...]:
        """The module's results; the parameters, which come last, are its own.

        Of a module without a gradient none is recorded: compilers would make it in advance.
        """
        inputs = list(self.inputs)
        for i, x in zip(self._tensors, tensors, strict=False):
            inputs[i] = x
        with nullcontext() if self._differentiable else torch.no_grad():
            return tuple(_flat(self.module(*inputs)))

    def vjp(
        self, function: Function, inputs: Tensors, grads: Tensors, wanted: Sequence[int]
    ) -> Pulled:
        """See `Backend.vjp`. Raises `Unsupported` where no result depends on anything."""
        own, xs = list(inputs), []
        for i in wanted:
            if i < len(self._tensors):
                own[i] = inputs[i].detach().requires_grad_()
                xs.append(own[i])
            else:
                xs.append(self.parameters[i - len(self._tensors)])
        outputs = as_tuple(function(*own))
        if xs and not any(y.requires_grad for y in outputs):
            raise Unsupported(FORWARD_ONLY)
        return tuple(y.detach() for y in outputs), pulled(outputs, grads, xs)

    def wait(self, tensors: Sequence[Any]) -> None:
        """Wait for all streams, by the function that torch had before the candidate came."""
        if self.device != "cpu":
            SYNCHRONIZE(self.device)


def _made(job: Mapping[str, Any], device: str) -> tuple[nn.Module, list[Any], bool]:
    """The module that a job describes, for each parameter of the reference its own, and whether
    it has the reference's state.
    """
    module = _imported(Path(job["path"]))
    made = getattr(module, job["name"], None)
    if made is None:
        raise AttributeError(f"it has no class {job['name']}")
    torch.manual_seed(job["seed"])
    model = made(*job["init"])
    if not isinstance(model, nn.Module):
        raise TypeError(f"{job['name']} makes no torch.nn.Module, but a {type(model).__name__}")
    own, state = model.state_dict(), job["state"]
    shared = {k: v.shape for k, v in own.items()} == {k: v.shape for k, v in state.items()}
    if shared:
        model.load_state_dict(state)
    model = model.to(device=device, dtype=getattr(torch, job["dtype"]))
    for part in model.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, torch.Tensor):
                setattr(part, name, value.to(device))
    by_name = {(name, p.shape): p for name, p in model.named_parameters()}
    parameters = [by_name.get(wanted) for wanted in job["parameters"].items()]
    if job["compile"]:
        model = torch.compile(model)
    return model, parameters, shared


def _imported(path: Path) -> ModuleType:
    """A file as a module, which may import what lies beside it."""
    sys.path.append(str(path.parent))
    name = f"d5test_candidate_{path.stem}"
    loader = SourceFileLoader(name, str(path))  # whatever its name ends in
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def _flat(result: Any) -> list[Any]:
    """The tensors of a result. Raises `BadRow` for what is no tensor, or one that is lazy."""
    if isinstance(result, Mapping):
        result = tuple(result.values())
    flat: list[Any] = []
    for part in as_tuple(result):
        if isinstance(part, tuple | list):
            flat += _flat(tuple(part))
        elif type(part) in (torch.Tensor, nn.Parameter):
            flat.append(part)
        elif part is not None:
            kind = f"{type(part).__module__}.{type(part).__qualname__}"
            raise BadRow(f"a {kind} was returned, where a plain tensor is wanted")
    return flat


def shares_state(backend: Candidate) -> bool:
    """Whether the names and shapes of its state are the reference's."""
    return backend.shares_state


def prepare(backend: Candidate, feeds: Sequence[Sequence[Any]]) -> None:
    """Make the tensors of the calls that will be timed."""
    backend.timed = [tuple(backend.put(bits.array, bits.dtype) for bits in feed) for feed in feeds]
    backend.last = {}


def call(backend: Candidate, count: int) -> None:
    """Call the feeds in turn, and wait; the last results of each are kept."""
    with torch.no_grad():
        for _ in range(count):
            which = backend.turn = (backend.turn + 1) % len(backend.timed)
            backend.last[which] = list(backend.call(None, *backend.timed[which]))
    backend.wait([])


def results(backend: Candidate) -> list[list[Any]]:
    """The last results of each feed, as arrays, each with its dtype."""
    last = (backend.last.get(k, ()) for k in range(len(backend.timed)))
    return [[Bits(*backend.get(y)) for y in outputs] for outputs in last]


def roofs(backend: Candidate) -> tuple[float, float]:
    """Operations and bytes a second, as this device reaches them in a product and in a copy."""
    x = torch.ones(MATMUL, MATMUL, device=backend.device)
    y, z = (torch.ones(COPY // 4, device=backend.device) for _ in range(2))
    best: list[float] = []
    for work, run in ((2 * MATMUL**3, partial(torch.mm, x, x)), (2 * COPY, partial(z.copy_, y))):
        seconds = []
        for _ in range(5):
            backend.wait([])
            start = time.perf_counter()
            run()
            backend.wait([])
            seconds.append(time.perf_counter() - start)
        best.append(work / min(seconds))
    return best[0], best[1]
