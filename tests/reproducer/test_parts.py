"""What a reproducer is made of: data, the difference that it shows, the source that it takes."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from d5test.numerics.bounds import Bound
from d5test.outcome.fault import Evidence, Fault
from d5test.reproducer import copied, data, short
from d5test.reproducer.closure import Closure, Inseparable, Module, globals_of
from d5test.reproducer.copied import Want, difference, widened


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "bool"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3), (9, 11)])
def test_data_are_read_back_to_the_same_bits(dtype: str, shape: tuple[int, ...]) -> None:
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    given = (100 * np.random.default_rng(5).normal(size=shape)).astype(kind)
    if given.size > 2 and "float" in dtype:
        given.flat[:3] = [np.inf, np.nan, -0.0]
    names = {**vars(copied), "inf": np.inf, "nan": np.nan}
    values, name = eval(data.tensor(given), names)
    assert name == dtype
    assert values.shape == shape
    assert values.tobytes() == given.tobytes()


def test_difference_agrees_with_the_judgement() -> None:
    want = Want("float32", np.array([1.0, 2.0, np.nan]), np.array([0.5, 0.5, 0.5]))
    assert not difference(np.array([1.4, 1.6, 7], np.float32), "float32", want)
    assert "[1]" in difference(np.array([1.4, 2.6, 7], np.float32), "float32", want)
    assert "[0]" in difference(np.array([np.nan, 2, 7], np.float32), "float32", want)
    assert "shape" in difference(np.zeros(2, np.float32), "float32", want)
    assert "dtype" in difference(np.zeros(3), "float64", want)
    huge = Want("float16", np.array([65600.0]), np.array([50.0]))
    assert not difference(np.array([np.inf], np.float16), "float16", huge)
    assert difference(np.array([-np.inf], np.float16), "float16", huge)
    assert widened(np.array([0x3FC0], np.uint16), "bfloat16").tolist() == [1.5]


def test_annotations_are_left_out() -> None:
    source = Module(
        "part",
        "def f(a: int, *b: int, c: str | None = 'x', **d: int) -> list[int]:\n"
        "    # said\n"
        "    e: int = a\n"
        "    return [e]\n",
    )
    assert source.text(source.statements[0]) == (
        "def f(a, *b, c='x', **d):\n    # said\n    e = a\n    return [e]"
    )


def test_statements_that_share_a_line_are_taken_apart() -> None:
    source = Module("part", "class A(B): rows = one(2); kept = 3\na = 1; b = 2\n")
    first, *others = source.statements
    texts = [source.text(node) for node in (*first.body, *others)]  # type: ignore[attr-defined]
    assert texts == ["    rows = one(2)", "    kept = 3", "a = 1", "b = 2"]


def test_what_stands_in_an_inner_function_is_rewritten_once() -> None:
    source = Module(
        "part",
        "def f(a: int) -> int:\n"
        "    def g(b: int) -> int:\n"
        "        c: list[int] = [b]\n"
        "        return c",
    )
    assert source.text(source.statements[0]) == (
        "def f(a):\n    def g(b):\n        c = [b]\n        return c"
    )


def test_a_class_that_a_framework_calls_keeps_all_methods(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import torch\n"
        "from enum import Enum\n\n"
        "class Relu(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def backward(ctx, dy): return scaled(dy)\n\n"
        "def scaled(x): return x\n\n"
        "class Way(Enum):\n"
        "    UP = 1\n\n"
        "    def other(self): return 0\n\n"
        "def relu(op, x): return Relu.apply(x, Way.UP)\n"
    )
    closure = Closure()
    closure.module("mine", path)
    closure.use("mine", "relu")
    text = "\n".join(closure.parts()["mine"])
    assert "def backward(ctx, dy)" in text
    assert "def scaled(x)" in text
    assert "def other" not in text


def test_globals_are_those_that_a_function_does_not_bind() -> None:
    text = "def f(a, b=c):\n    d = e\n    return [g(h, d) for h in a]"
    assert globals_of(text) == {"c", "e", "g"}


@pytest.mark.parametrize("claim", ["within", "computed"])
def test_outputs_computed_with_a_gradient_may_be_stashed_in_float32(claim: str) -> None:
    feed = SimpleNamespace(grads=(np.ones(2),))
    evidence = Evidence((feed,), claim, ((None, None),))
    op = SimpleNamespace(stashed_outputs=(1,))
    fault = Fault("gradient", SimpleNamespace(op=op), "", {}, evidence=evidence)
    assert data.expected(fault) == [[(None, False), (None, claim == "computed")]]


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_integers_are_compared_exactly(dtype: str) -> None:
    """Float64 does not tell 2^60 from its neighbours."""
    want = Want(dtype, [2**60, 3], [0.0, 0.0])
    right, wrong = np.array([2**60, 3], dtype), np.array([2**60 + 1, 3], dtype)
    assert difference(right, dtype, want) == ""
    words = difference(wrong, dtype, want)
    assert words.startswith("1 of 2 elements are wrong, worst at [0]: 1152921504606846977, want")
    open_ = Want(dtype, [0, 3], [np.inf, 0.0])  # beyond the dtype: anything is right
    assert difference(wrong, dtype, open_) == ""


def test_a_short_reproducer_compares_no_integer_that_float64_has_not() -> None:
    bound = Bound(np.array([2**53 + 1]), np.zeros(1), None, exactly=True)
    with pytest.raises(Inseparable, match="does not tell such integers apart"):
        short.want(bound, stashed=False)
    small = replace(bound, value=np.array([7]))
    assert short.want(small, stashed=False) == '("int64", np.array([7]), np.array([0.0]))'


def test_a_decorator_that_enters_a_row_is_left_out_whoever_wrote_it(tmp_path: Path) -> None:
    """One that makes a plan of it, too: what is taken out is called as a plan already."""
    path = tmp_path / "mine.py"
    path.write_text(
        "from functools import cache\n"
        "from d5test.backends.base import Table, planned\n"
        "rows = Table()\n"
        "def native(name):\n"
        "    return lambda row: rows.native(name)(planned(row))\n"
        "@cache\n"
        "def known(n):\n"
        "    return n\n"
        "@native('Relu')\n"
        "def relu(op, x):\n"
        "    return lambda x: x.clip(known(0))\n"
    )
    closure = Closure()
    closure.module("mine", path)
    closure.use("mine", "relu")
    text = "\n".join(closure.parts()["mine"])
    assert "native" not in text
    assert "@cache\ndef known" in text
