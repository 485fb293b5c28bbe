"""Reproducers of wrong derivatives, short and long, show the fault and see that it is gone."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from d5test.case import Case, Tensor
from d5test.checks import CHECKS, Fault
from d5test.checks.derivatives import Derivative
from d5test.client.client import WorkerClient
from d5test.numerics.derivatives import slope_bounds, tangent_bounds
from d5test.reference.operators import OPERATORS
from d5test.reproducer import compose, prove, short

MAX = Case(OPERATORS["Max"](), (Tensor((2, 3, 5)), Tensor((3, 5))), seed=78)
PRODUCT = Case(OPERATORS["Mul"](), (Tensor((2, 3)), Tensor((3,))))
SQUARE = Case(OPERATORS["Mul"](), (Tensor((3,)), Tensor((3,), same_as=0)))


def test_a_fault_of_forward_mode_is_one_call_of_the_frameworks_own() -> None:
    pytest.importorskip("torch")
    with WorkerClient("torch") as client:
        with pytest.raises(Fault) as raised:
            CHECKS["forward_mode"].run(client, MAX)
        raised.value.name_calls(client)
        path, said = prove(raised.value, client, Path(".d5test") / "derivatives")
    text = path.read_text()
    path.unlink()
    assert not said
    assert "torch.func.jvp(lambda x0, x1: torch.maximum(x0, x1)" in text
    assert len(text.splitlines()) <= 40


def fault(check: str, client: Any, case: Case, shift: float) -> Fault:
    """That the derivatives are not those of the reference, `shift` added."""
    inquiry = Derivative(check, client, case)
    (arithmetic,) = inquiry.classes()
    data: tuple[Any, ...] = (case.op, inquiry.arrays)
    if check == "forward_mode":
        feed = inquiry.feed(tangents=inquiry.direction)
        bounds = tangent_bounds(*data, inquiry.direction, arithmetic)
    else:
        feed = inquiry.feed(grads=inquiry.upstream, tangents=inquiry.direction)
        slopes = slope_bounds(*data, inquiry.upstream, inquiry.direction, arithmetic)
        bounds = inquiry.at_wanted(slopes)
    shifted = tuple(replace(b, value=b.value + shift) for b in bounds if b is not None)
    made = inquiry.fault("tangent", "is wrong", (feed,), "within", None, (shifted,))
    made.name_calls(client)
    return made


@pytest.mark.nightly
@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow"])
@pytest.mark.parametrize("check", ["forward_mode", "second_gradient"])
def test_files_show_what_is_wrong_and_what_is_not(
    framework: str, check: str, tmp_path: Path
) -> None:
    pytest.importorskip(framework)
    with WorkerClient(framework) as client:
        for case, shift in ((PRODUCT, 0.0), (PRODUCT, 1.0), (SQUARE, 0.0), (SQUARE, 1.0)):
            made = fault(check, client, case, shift)
            texts = [compose.source(made, client.about)]
            if case is PRODUCT:
                texts.append(short.source(made, client.about))
                assert len(texts[-1].splitlines()) <= 40
            for text in texts:
                path = tmp_path / "reproducer.py"
                path.write_text(text)
                ended = subprocess.run(
                    [sys.executable, str(path)], capture_output=True, text=True, check=False
                )
                assert ended.returncode == int(shift), ended.stdout + ended.stderr
