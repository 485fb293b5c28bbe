"""A plan looks at shapes, dtypes and the values that its row names, and at nothing else."""

import math
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from d5test.backends.base import Always, Backend, Row, Unsupported, bits, planned
from d5test.case import Case
from d5test.client import registry
from d5test.reference.operators import OPERATORS
from d5test.strategies import cases
from tests.nightly import at_night

FRAMEWORKS = ("torch", "tensorflow", "jax")


class Described:
    """What may be asked of a tensor while a row is planned. It has no values."""

    def __init__(self, tensor: Any) -> None:
        self.shape, self.dtype, self.ndim = tensor.shape, tensor.dtype, tensor.ndim
        self.device = tensor.device

    def numel(self) -> int:
        return math.prod(self.shape)


@cache
def made(framework: str) -> Backend:
    module, _, name = registry.target(framework).rpartition(":")
    pytest.importorskip(framework)
    backend: Backend = getattr(import_module(module), name)()
    return backend


def rows(framework: str) -> dict[str, Row]:
    return {
        name: row
        for name, row in made(framework).rows.items()
        if isinstance(row.call, planned) and not isinstance(row.call.plan, Always)
    }


def tensors(backend: Backend, case: Case) -> list[Any]:
    arrays = (None if x is None else bits(x) for x in case.arrays())
    return [None if pair is None else backend.put(*pair) for pair in arrays]


def values(backend: Backend, result: Any) -> list[tuple[str, bytes]]:
    """The bits of all outputs."""
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    read = (backend.get(y) for y in outputs)
    return [(dtype, np.ascontiguousarray(array).tobytes()) for array, dtype in read]


@pytest.mark.parametrize("framework", ["torch", "tensorflow", at_night("jax")])
def test_a_plan_of_shapes_alone_is_the_row(framework: str) -> None:
    """For all rows in one test, since what a framework's rows are is known when it is imported."""
    backend = made(framework)
    tried = {name: compared(backend, name, row) for name, row in rows(framework).items()}
    assert len(tried) > 15
    assert [name for name, count in tried.items() if not count] == []


def compared(backend: Backend, name: str, row: Row) -> int:
    """How many drawn cases were planned without values and then called with those of others."""
    count = 0

    @settings(
        max_examples=6, database=None, derandomize=True, deadline=None, phases=[Phase.generate]
    )
    @given(data=st.data())
    def run(data: Any) -> None:
        nonlocal count
        case = data.draw(cases(OPERATORS[name], "float32"))
        try:
            given, later = (tensors(backend, replace(case, seed=case.seed + k)) for k in (0, 1))
        except Unsupported:
            return
        described = [
            x if x is None or i in row.values else Described(x) for i, x in enumerate(given)
        ]
        inputs = [given[i] if i in row.values else x for i, x in enumerate(later)]
        try:
            want = values(backend, row.call(case.op, *inputs))
        except Exception as error:  # noqa: BLE001 (whatever the call raises, the plan raises too)
            if isinstance(error, Unsupported) or backend.refusal(error):
                return
            with pytest.raises(type(error)):
                values(backend, row.plan(case.op, described)(*inputs))
            return
        assert values(backend, row.plan(case.op, described)(*inputs)) == want, case
        count += 1

    run()
    return count


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_a_plan_reads_is_said(framework: str) -> None:
    """A row that turns integers of a tensor into arguments cannot be planned without them."""
    backend = made(framework)
    shape, x = np.array([3, 2]), np.ones((2, 3), np.float32)
    given = [backend.put(x, "float32"), backend.put(shape, "int64")]
    row = backend.rows["Reshape"]
    assert row.values == (1,)
    y = row.plan(OPERATORS["Reshape"](), [Described(given[0]), given[1]])(*given)
    assert tuple(y.shape) == (3, 2)
    with pytest.raises(Exception, match="Described"):
        row.plan(OPERATORS["Reshape"](), [Described(t) for t in given])(*given)
