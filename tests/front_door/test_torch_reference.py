"""A function or a module of PyTorch is a reference: right functions pass, mistakes are found."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import d5test
from d5test.modules import is_of_torch
from d5test.outcome.fault import Fault
from tests.nightly import thinned

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
Function = Callable[..., Any]


def by_hand(x: Any) -> Any:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.mT / q.shape[-1] ** 0.5
    hidden = ~torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return torch.softmax(scores.masked_fill(hidden, -torch.inf), -1) @ v


def normalised(x: Any, weight: Any, bias: Any, eps: float = 1e-5) -> Any:
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def gated(x: Any, w: Any, v: Any) -> Any:
    return F.silu(x @ w) * (x @ v)


def shifted(q: Any, k: Any, v: Any) -> Any:
    n = q.shape[-2]
    seen = torch.ones(n, n, dtype=torch.bool).tril(1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


NORM = {"x": "n d", "weight": "d", "bias": "d"}
HEADS = {"q": "b h n d", "k": "b h n d", "v": "b h n e"}
GATE = {"x": "n d", "w": "d e", "v": "d e"}
CASES: dict[str, tuple[Function, Function, dict[str, str], dict[str, Function]]] = {
    "softmax": (
        partial(torch.softmax, dim=-1),
        by_hand,
        {"input": "n d"},
        {
            "another axis": partial(torch.softmax, dim=0),
            "in 16 bits": lambda x: torch.softmax(x.bfloat16(), -1).to(x.dtype),
            "half of the elements": lambda x: torch.softmax(x[..., : x.shape[-1] // 2 + 1], -1),
        },
    ),
    "layer norm": (
        normalised,
        lambda x, weight, bias: (
            (x - x.mean(-1, keepdim=True))
            / torch.sqrt(x.var(-1, keepdim=True, correction=0) + 1e-5)
            * weight
            + bias
        ),
        NORM,
        {
            "another epsilon": partial(normalised, eps=1e-6),
            "unbiased": lambda x, weight, bias: (
                (x - x.mean(-1, keepdim=True))
                / torch.sqrt(x.var(-1, keepdim=True) + 1e-5)
                * weight
                + bias
            ),
            "no bias": lambda x, weight, bias: normalised(x, weight, 0 * bias),
        },
    ),
    "attention": (
        attention,
        partial(F.scaled_dot_product_attention, is_causal=True),
        HEADS,
        {
            "no scale": partial(F.scaled_dot_product_attention, is_causal=True, scale=1.0),
            "no mask": F.scaled_dot_product_attention,
            "a mask off by one": shifted,
        },
    ),
    "swiglu": (
        gated,
        lambda x, w, v: (x @ w) * torch.sigmoid(x @ w) * (x @ v),
        GATE,
        {
            "swapped": lambda x, w, v: gated(x, v, w),
            "another gate": lambda x, w, v: F.gelu(x @ w) * (x @ v),
            "a detached gate": lambda x, w, v: F.silu(x @ w).detach() * (x @ v),
        },
    ),
}


@pytest.mark.parametrize("name", thinned(CASES, 4))
def test_a_right_function_passes(name: str) -> None:
    like, function, inputs, _ = CASES[name]
    d5test.check(
        function, like, inputs=inputs, backend="torch", dtypes=("float32", "bfloat16"), examples=8
    )


@pytest.mark.parametrize(
    ("name", "wrong"),
    thinned(((name, wrong) for name, case in CASES.items() for wrong in case[3]), 6),
)
def test_a_mistake_is_found(name: str, wrong: str) -> None:
    like, _, inputs, mistakes = CASES[name]
    with pytest.raises(Fault):
        d5test.check(mistakes[wrong], like, inputs=inputs, backend="torch", dtypes="float32")


def test_a_module_is_a_reference_with_its_parameters_as_they_are() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(4, 3)
    weight, bias = linear.weight.detach().clone(), linear.bias.detach().clone()
    check = partial(d5test.check, inputs={"input": "... 4"}, backend="torch", dtypes="float32")
    check(lambda x: x @ weight.T + bias, linear)
    with pytest.raises(Fault, match="the result is wrong"):
        check(lambda x: x @ weight.T, linear)


@pytest.mark.nightly
def test_a_compiled_module_is_a_reference(capfd: pytest.CaptureFixture[str]) -> None:
    """Dynamo compiles it alone, and not the modes that look at what it computes."""
    like = torch.compile(nn.Softmax(-1), backend="eager")
    check = partial(d5test.check, inputs={"input": "n d"}, backend="torch", dtypes="float32")
    check(partial(torch.softmax, dim=-1), like)
    with pytest.raises(Fault, match="the result is wrong"):
        check(partial(torch.softmax, dim=0), like)
    assert "recompil" not in capfd.readouterr().err


def test_an_overflow_is_found_where_large_values_are_asked_for() -> None:
    with pytest.raises(Fault, match="nan"):
        d5test.check(
            lambda x: torch.exp(x) / torch.exp(x).sum(-1, keepdim=True),
            partial(torch.softmax, dim=-1),
            inputs={"input": d5test.Input("n d", values=["normal", ("scaled", 8)])},
            backend="torch",
            dtypes="float32",
        )


def test_numpy_is_judged_by_a_function_of_torch() -> None:
    d5test.check(lambda x: np.maximum(x, 0), torch.relu, inputs={"x": "n d"}, dtypes="float32")
    with pytest.raises(Fault):
        d5test.check(lambda x: np.maximum(x, 1), torch.relu, inputs={"x": "n d"}, dtypes="float32")


def test_a_reference_that_draws_numbers_judges_nothing() -> None:
    with pytest.raises(TypeError, match=r"draws random numbers.*\.eval\(\)"):
        d5test.check(F.dropout, nn.Dropout(), inputs={"input": "n d"}, backend="torch")


def test_what_is_of_torch_is_seen_from_the_names_that_its_code_reads() -> None:
    scale = nn.Parameter(torch.ones(()))
    assert all(
        map(
            is_of_torch,
            (
                torch.relu,
                F.gelu,
                torch.Tensor.relu,
                nn.GELU(),
                partial(F.softmax, dim=0),
                by_hand,
                lambda x: F.silu(x),
                lambda x: x * scale,
            ),
        )
    )
    assert not any(map(is_of_torch, (np.exp, lambda x: np.exp(x), abs, lambda x: x + 1)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"device": "cuda:0"}, "device='cuda:0' is a framework's"),
        ({"device": "cuda:77", "backend": "torch"}, "torch has no device 'cuda:77' here; .* cpu"),
    ],
)
def test_a_device_that_is_not_there_says_which_are(options: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        d5test.check(torch.relu, torch.relu, inputs={"input": "n"}, **options)
