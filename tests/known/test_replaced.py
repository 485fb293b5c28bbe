"""Known failures of a framework are those of d5test's own rows, not of a user's in their place."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from d5test.backends.base import Unsupported
from d5test.client.client import WorkerClient
from d5test.client.messages import Feed, same
from d5test.client.registry import installed
from d5test.known.reading import shipped
from d5test.reference.operators import OPERATORS

pytestmark = pytest.mark.skipif("torch" not in installed(), reason="torch is not installed")
TINY = Path(__file__).parents[1] / "backends" / "tiny.py"
BACKENDS = """
from d5test.backends.base import Forms, Row, planned
from d5test.backends.torch import Torch


def hard_swish(op, x):
    return x * (x / 6 + 0.5).clamp(0, 1)


class Kept(Torch):
    rows = {**Torch.rows, "Relu": Row(planned(lambda op, x: hard_swish))}


class Bare(Torch):
    forms = Forms()


class Replaced(Torch):
    rows = {**Torch.rows, "HardSwish": Row(hard_swish)}
"""


def test_one_is_not_demanded_of_a_row_that_replaces_ours(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.path.joinpath("mine.py").write_text(BACKENDS)
    suites = shipped("torch").parents[1]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    ran = pytester.run(
        sys.executable, "-m", "pytest", suites / "operators" / "test_known.py", "-v",
        "--backend=./mine.py:Kept,./mine.py:Replaced", "--operator=HardSwish,HardSigmoid",
        "--check=accuracy", "--dtype=float32", "-p", "no:cacheprovider",
    )  # fmt: skip
    lines = ran.outlines
    asked = [line for line in lines if "test_known[" in line and "float32" in line]
    assert any("Kept-accuracy-HardSwish" in line and "XFAIL" in line for line in asked), lines
    assert not any("Replaced-accuracy-HardSwish" in line for line in asked)


def test_nor_of_a_form_that_the_backend_lacks(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.path.joinpath("mine.py").write_text(BACKENDS)
    suites = shipped("torch").parents[1]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    ran = pytester.run(
        sys.executable, "-m", "pytest", suites / "operators" / "test_known.py", "-q",
        "--backend=./mine.py:Bare", "--operator=Attention,HardSwish", "-p", "no:cacheprovider",
    )  # fmt: skip
    outcomes = ran.parseoutcomes()
    assert outcomes.get("xfailed"), ran.outlines  # of HardSwish
    assert not {"failed", "errors"} & outcomes.keys(), ran.outlines


def test_whose_a_row_is(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BACKENDS)
    for name, replaced in {"Kept": {"Relu"}, "Replaced": {"HardSwish"}}.items():
        with WorkerClient(f"{tmp_path / 'mine.py'}:{name}") as client:
            about = client.about
        assert {op for op, row in about.rows.items() if not row.ours} == replaced
        forms = {
            (op, form)
            for op, named in about.forms.items()
            for form, row in named.items()
            if not row.ours
        }
        under = ("torch.func.vmap", "torch.func.vmap(in_dims=)")
        assert forms == {(op, form) for op in replaced for form in under}


def test_ours_is_the_row_that_was_replaced_and_of_a_backend_of_its_own_there_is_none(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.py").write_text(BACKENDS)
    op, x = OPERATORS["HardSwish"](), np.linspace(-4, 4, 64, dtype=np.float32)
    with WorkerClient(f"{tmp_path / 'mine.py'}:Replaced") as client:
        mine, ours = (client.run(op, [Feed((x,))], ours=ours)[0].outputs for ours in (False, True))
    with WorkerClient("torch") as client:
        torchs = client.run(op, [Feed((x,))])[0].outputs
    assert same(ours, torchs)
    assert not same(mine, torchs)
    with WorkerClient(f"{TINY}:Tiny") as client:
        name = next(iter(client.about.rows))
        with pytest.raises(Unsupported, match=f"no row of {name} that the backend replaces"):
            client.run(OPERATORS[name](), [Feed((x, x))], ours=True)
