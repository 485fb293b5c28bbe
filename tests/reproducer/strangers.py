"""A stranger's backend with one wrong operator, its faults, and reproducers run alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from d5test.case import Case, Tensor
from d5test.checks import CHECKS, Fault
from d5test.client.client import WorkerClient

OPERATOR = "Add"
CASE_INPUTS = (Tensor((2, 3)), Tensor((2, 3)))

BACKEND = '''
"""A stranger's backend."""
from __future__ import annotations
import os, signal, time
from typing import Any
import numpy as np
from d5test.backends.base import Backend, Row, Table, Unsupported, bits

rows = Table()
STATE: dict[str, Any] = {{"calls": 0}}
UNUSED = print


def same(x: Any | None, y: Any = None) -> Any:
    return [x for x, _ in zip([x], [y], strict=True)][0]


@rows.native("Add", {row})
def add(op: Any, x: Any, y: Any) -> Any:
    good = same(x) + y
    STATE["calls"] += 1
    {wrong}


class Mine(Backend):
    framework = "numpy"
    rows = rows
    mutable = True

    @property
    def version(self) -> str:
        return np.__version__

    def put(self, array: Any, dtype: str, layout: str = "contiguous") -> Any:
        return np.array(array)

    def refill(self, tensor: Any, array: Any, dtype: str) -> None:
        tensor[...] = array

    def get(self, tensor: Any) -> Any:
        return bits(np.array(tensor))

    def wait(self, tensors: Any) -> None:
        """Done."""

    def vjp(self, function: Any, inputs: Any, grads: Any, wanted: Any) -> Any:
        outputs = function(*inputs)
        slopes = [grads[0].copy() for _ in wanted]
        {slopes}
        return outputs if isinstance(outputs, tuple) else (outputs,), slopes

    {facts}
'''


def run(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The file, isolated: it finds NumPy, but neither d5test nor the working directory."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | environment
    command = [sys.executable, "-P", str(path)]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def case(seed: int = 7) -> Case:
    from d5test.reference.operators import OPERATORS

    return Case(OPERATORS[OPERATOR](), CASE_INPUTS, seed)


def fault_of(client: WorkerClient, check: str) -> Fault:
    with pytest.raises(Fault) as caught:
        CHECKS[check].run(client, case())
    return caught.value
