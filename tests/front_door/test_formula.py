"""Any formula in NumPy is a reference: right functions pass, each mistake is found."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from scipy import special

import d5test
from d5test import Input
from d5test.formula import operator_of
from d5test.front_door import Untested
from d5test.outcome.fault import Fault
from d5test.reference.operators import LogSoftmax, Relu, Softmax
from d5test.strategies import cases
from tests.faults.mutants import drawn

torch = pytest.importorskip("torch")
F = torch.nn.functional
Function = Callable[..., Any]


def rope(x: Any, cos: Any, sin: Any) -> Any:
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def turned(x: Any, cos: Any, sin: Any, *, sign: float = 1.0, swapped: bool = False) -> Any:
    a, b = x.chunk(2, -1)
    halves = [a * cos - b * sin, b * cos + sign * a * sin]
    return torch.cat(halves[::-1] if swapped else halves, -1)


def causal(q: Any, k: Any, v: Any) -> Any:
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    n = scores.shape[-1]
    scores = np.where(np.triu(np.ones((n, n), bool), 1), -np.inf, scores)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def attended(q: Any, k: Any, v: Any, off: int = 0, scale: float | None = None) -> Any:
    mask = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril(off)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)


def rms(x: Any, r: Any, w: Any, eps: float) -> Any:
    h = x + r
    return h / np.sqrt((h * h).mean(-1, keepdims=True) + eps) * w


def smoothed(x: Any, y: Any) -> Any:
    z = LogSoftmax(axis=1)(x)[0]
    picked = np.take_along_axis(z, y[:, None], 1)[:, 0]
    return -(0.9 * picked + 0.1 * z.mean(1)).mean()


def gated(x: Any, w: Any, a: Any, b: Any) -> Any:
    g = Softmax(axis=-1)(x @ w)[0]
    return g[..., :1] * (x @ a) + g[..., 1:] * (x @ b)


def routed(x: Any, w: Any) -> Any:
    scores = x @ w
    chosen = np.argsort(-scores, axis=-1)[:, :2]
    best = Softmax(axis=-1)(np.take_along_axis(scores, chosen, -1))[0]
    gates = np.zeros_like(scores)
    np.put_along_axis(gates, chosen, best, -1)
    return gates


def top(x: Any, w: Any, k: int = 2, *, late: bool = False) -> Any:
    scores = x @ w
    best, chosen = (torch.softmax(scores, -1) if late else scores).topk(k, -1)
    best = best[:, :2] if late else torch.softmax(best, -1)[:, :2]
    return torch.zeros_like(scores).scatter(-1, chosen[:, :2], best)


def mixed(x: Any, w: Any, a: Any, b: Any) -> Any:
    g = torch.softmax(x @ w, -1)
    return g[..., :1] * (x @ a) + g[..., 1:] * (x @ b)


class Stopped(torch.autograd.Function):  # type: ignore[misc]
    """x g sigmoid(g), whose gradient is that of x sigmoid(g)."""

    @staticmethod
    def forward(ctx: Any, x: Any, g: Any) -> Any:
        ctx.save_for_backward(x, g)
        return x * F.silu(g)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        x, g = ctx.saved_tensors
        s = torch.sigmoid(g)
        return dy * F.silu(g), dy * x * s


HALF = ("float32", "bfloat16")
# a formula, the options of check, the function that is right, and wrong ones
FORMULAS: dict[str, tuple[Function, dict[str, Any], Function, list[Function]]] = {
    "rope": (
        rope,
        {"inputs": {"x": "b h s 2*d", "cos": "s d", "sin": "s d"}, "sizes": {"d": (4, 32)},
         "wrt": "x"},
        turned,
        [lambda *xs: turned(*xs, sign=-1), lambda *xs: turned(*xs, swapped=True),
         lambda x, cos, sin: turned(x, sin, cos)],
    ),
    "swiglu": (
        lambda x, g: x * g / (1 + np.exp(-g)),
        {"inputs": {"x": "... d", "g": "... d"}},
        lambda x, g: x * F.silu(g),
        [lambda x, g: x * F.gelu(g), lambda x, g: g * F.silu(x), Stopped.apply],
    ),
    "causal attention": (
        causal,
        {"inputs": dict.fromkeys("qkv", "b h n d")},
        attended,
        [lambda q, k, v: attended(q, k, v, off=1), lambda q, k, v: attended(q, k, v, off=-1),
         lambda q, k, v: attended(q, k, v, scale=1.0)],
    ),
    "RMS norm of a sum": (
        rms,
        {"inputs": {"x": "... d", "r": "... d", "w": "d"}, "attributes": {"eps": [1e-5, 1e-3]}},
        lambda x, r, w, eps: F.rms_norm(x + r, w.shape, w, eps),
        [lambda x, r, w, eps: F.rms_norm(x, w.shape, w, eps),
         lambda x, r, w, eps: F.rms_norm(x + r, w.shape, w, 1.3 * eps),
         lambda x, r, w, eps: F.layer_norm(x + r, w.shape, w, None, eps)],
    ),
    "cross entropy, smoothed": (
        smoothed,
        {"inputs": {"x": "n c", "y": Input("n", below="c")}},
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
        [F.cross_entropy, lambda x, y: F.cross_entropy(x, y, label_smoothing=0.11),
         lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1, reduction="sum") / x.shape[1]],
    ),
    "mixture of two experts": (
        gated,
        {"inputs": {"x": "n d", "w": "d 2", "a": "d o", "b": "d o"}},
        mixed,
        [lambda x, w, a, b: mixed(x, w, b, a), lambda x, w, a, b: mixed(x, 1.01 * w, a, b),
         lambda x, w, a, b: mixed(x, w.detach(), a, b)],
    ),
    "gates of the best two experts": (
        routed,
        {"inputs": {"x": Input("n d", values="normal"), "w": Input("d 8", values="normal")}},
        top,
        [lambda x, w: top(x, w, late=True), lambda x, w: top(x, w, 3), lambda x, w: top(-x, w)],
    ),
    "product with int8 weights": (
        lambda x, q, s: x @ (q * s),
        {"inputs": {"x": "n d", "q": Input("d o", dtype="int8", below=127), "s": "o"}},
        lambda x, q, s: x @ (q.to(x.dtype) * s),
        [lambda x, q, s: x @ (q.clamp(max=100).to(x.dtype) * s),
         lambda x, q, s: x @ q.to(x.dtype) * s.abs(), lambda x, q, s: x @ q.to(x.dtype)],
    ),
    "convolution over a window": (
        lambda x, w: np.einsum("nclk,ock->nol", sliding_window_view(x, 3, -1), w),
        {"inputs": {"x": "n c l+2", "w": "o c 3"}},
        F.conv1d,
        [lambda x, w: F.conv1d(x, w.flip(-1)), lambda x, w: F.conv1d(x, w) * 1.01,
         lambda x, w: F.conv1d(x, w, padding=1)[..., 2:]],
    ),
    "masked mean": (
        lambda x, m: np.where(m, x, 0).sum(-1) / x.shape[-1],
        {"inputs": {"x": "n d", "m": Input("n d", dtype="bool")}},
        lambda x, m: torch.where(m, x, 0).mean(-1),
        [lambda x, m: torch.where(m, 0, x).mean(-1), lambda x, m: x.mean(-1),
         lambda x, m: torch.where(m, x, 0).sum(-1) / m.sum(-1)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMULAS)
def test_what_is_right_passes(name: str) -> None:
    formula, options, right, _ = FORMULAS[name]
    d5test.check(right, like=formula, backend="torch", dtypes=HALF, examples=12, **options)


@pytest.mark.parametrize(
    ("name", "mistake"), [(name, k) for name in FORMULAS for k in range(len(FORMULAS[name][3]))]
)
def test_each_mistake_is_found(name: str, mistake: int) -> None:
    formula, options, _, wrong = FORMULAS[name]
    with pytest.raises(Fault):
        d5test.check(wrong[mistake], like=formula, backend="torch", dtypes="float32", **options)


def test_the_example_of_the_documentation_runs() -> None:
    page = (Path(d5test.__file__).parents[1] / "docs/formula.md").read_text()
    names: dict[str, Any] = {"my_rope": turned}
    exec(page.split("```python")[1].split("```")[0], names)
    names["test_rope"]()
    names["my_rope"] = FORMULAS["rope"][3][0]
    with pytest.raises(Fault, match="the result is wrong"):
        names["test_rope"]()


def test_parameters_of_a_module_are_inputs() -> None:
    linear = torch.nn.Linear(4, 3)
    options: dict[str, Any] = {
        "like": lambda x, weight, bias: x @ weight.T + bias,
        "inputs": {"x": "... 4", "weight": "3 4", "bias": "3"},
        "backend": "torch",
    }

    def called(x: Any, weight: Any, bias: Any) -> Any:
        return torch.func.functional_call(linear, {"weight": weight, "bias": bias}, (x,))

    d5test.check(called, **options)
    with pytest.raises(Fault, match="gradient of input bias"):
        d5test.check(lambda x, w, b: called(x, w, b.detach()), **options)


def test_numpy_functions_bring_their_own_gradient() -> None:
    options: dict[str, Any] = {"like": lambda x: x / (1 + np.exp(-x)), "inputs": {"x": "..."}}

    def silu(x: Any) -> Any:
        return x * special.expit(x)

    def slope(grads: Any, inputs: Any, outputs: Any) -> Any:
        (dy,), (x,) = grads, inputs
        s = special.expit(x)
        return dy * s * (1 + x * (1 - s))

    d5test.check(silu, gradient=slope, **options)
    with pytest.raises(Fault, match="the gradient is wrong"):
        d5test.check(silu, gradient=lambda grads, inputs, outputs: grads[0] * 2, **options)


def test_weights_may_stay_in_float32() -> None:
    """Each gradient is in the dtype of its input."""
    options: dict[str, Any] = {
        "like": lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w,
        "inputs": {"x": "n d", "w": Input("d", dtype="float32")},
        "dtypes": ("float32", "bfloat16"),
        "backend": "torch",
    }

    def normalised(x: Any, w: Any) -> Any:
        h = x.float()
        h = h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-5)
        return (h * w).to(x.dtype)

    d5test.check(normalised, **options)
    with pytest.raises(Fault, match="the result is wrong"):
        d5test.check(lambda x, w: normalised(x, 1.01 * w), **options)
    with pytest.raises(Fault, match="result 0 has the wrong dtype"):
        d5test.check(lambda x, w: normalised(x, w).to(w.dtype), **options)


def test_only_what_wrt_names_has_a_gradient() -> None:
    options: dict[str, Any] = {"like": lambda x, w: x * w, "inputs": {"x": "n", "w": "n"}}

    def half(x: Any, w: Any) -> Any:
        return x * w.detach()

    d5test.check(half, backend="torch", wrt="x", **options)
    with pytest.raises(Fault, match="gradient of input w"):
        d5test.check(half, backend="torch", **options)


def test_a_formula_named_like_an_operator_is_granted_nothing_of_it() -> None:
    """The row of torch's Gelu has another erf."""

    def Tanh(x: Any) -> Any:  # noqa: N802 - as an operator
        return np.tanh(x) + x

    d5test.check(lambda x: torch.tanh(x) + x, like=Tanh, inputs={"x": "n"}, backend="torch")
    with pytest.raises(Fault):
        d5test.check(torch.tanh, like=Tanh, inputs={"x": "n"}, backend="torch")


def test_axes_of_one_name_have_one_size_and_sizes_are_drawn_where_kernels_change() -> None:
    made = operator_of(
        lambda x, w, m: x, {"x": "... s 2*d", "w": "d//2 s", "m": Input("s", below="d")},
        {"d": (4, 64)},
    )  # fmt: skip
    met = drawn(cases(made, "float32"), 60)
    for case in met:
        x, w, m = case.shapes
        assert x is not None
        assert x[-1] in (8, 128)
        assert (w, m) == ((x[-1] // 4, x[-2]), (x[-2],))
    assert {len(case.shapes[0] or ()) for case in met} >= {3, 4, 5}


def test_what_is_computed_has_an_element() -> None:
    made = operator_of(lambda x, i: x, {"x": "n-9", "i": Input("k", below="n-8")})
    assert all((c.shapes[0] or (0,))[0] >= 1 for c in drawn(cases(made, "float32"), 30))
    with pytest.raises(ValueError, match=r"'d-40' has no element, where .*'d': 32.* what d may"):
        operator_of(lambda x: x, {"x": "n d-40"}, {"d": (32, 64)})


def by_index(z: Any, w: Any) -> Any:
    return w[np.argsort(-np.tanh(z), axis=-1)[:, :2]].sum(1)


def by_take(z: Any, w: Any) -> Any:
    return np.take(w, np.argsort(-np.tanh(z), axis=-1)[:, :2], 0).sum(1)


@pytest.mark.parametrize("formula", [by_index, by_take])
def test_rows_may_be_chosen_by_an_order_that_is_in_doubt(formula: Any) -> None:
    inputs = {"z": Input("t 4", values="normal"), "w": "4 f"}
    options: dict[str, Any] = {"like": formula, "inputs": inputs, "dtypes": HALF, "wrt": "w"}
    d5test.check(lambda z, w: w[z.topk(2, -1)[1]].sum(1), backend="torch", **options)
    with pytest.raises(Fault, match="the result is wrong"):
        d5test.check(lambda z, w: w[z.topk(2, -1)[1]].mean(1), backend="torch", **options)


def test_scores_of_attention_stay_affordable() -> None:
    """Where an axis is as long as a loop that runs in parallel, n by n would be 10^9."""
    made = operator_of(causal, dict.fromkeys("qkv", "n d"))
    for n, d in (c.shapes[0] or () for c in drawn(cases(made, "float32"), 30)):
        assert n * n <= 1_000_000
        assert d <= n * d


def _check(like: Any = np.tanh, **options: Any) -> None:
    d5test.check(torch.tanh, like=like, backend="torch", **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, r'like=tanh is a formula: say which axes .* inputs=\{"x": "n d"\}'),
        ({"like": lambda q, k: q}, r'inputs=\{"q": "n d", "k": "n d"\}'),
        ({"like": Relu(), "inputs": {"x": "n"}}, "inputs= is for a formula; Relu.* says itself"),
        ({"inputs": {"x": "n d/2"}}, "'d/2' is no axis: it is a name, a number, or"),
        ({"inputs": {"x": "n//0"}}, "'n//0' has no element"),
        ({"inputs": {"x": "n ..."}}, r"\.\.\. stands first"),
        ({"like": lambda x: x, "inputs": {"y": "n"}}, "inputs= names 'y', .* known: x"),
        ({"like": lambda x, w: x, "inputs": {"x": "n"}}, 'says nothing of w, .*"w": "n d"'),
        ({"inputs": {"x": "n d"}, "sizes": {"c": 3}}, "sizes= names 'c', .* known: n, d"),
        ({"inputs": {"x": "n d"}, "sizes": {"d": (0, 3)}}, "at least 1"),
        ({"inputs": {"x": "n d"}, "sizes": {"d": "32"}}, "at least 1"),
        ({"inputs": {"x": "n d"}, "sizes": {"d": (4.5,)}}, "at least 1"),
        ({"inputs": ["n d"]}, r"inputs= is a dict, .* not \['n d'\]"),
        ({"inputs": {"x": ("n", "d")}}, 'written in one text, as in "n 2'),
        ({"inputs": {"x": "100000000"}}, "has 100000000 elements"),
        ({"inputs": {"x": "n*n*n*n*n*n*n*n n*n*n*n*n*n*n*n*n*n*n"}}, "elements, where"),
        ({"inputs": {"x": "n"}, "wrt": 0}, 'wrt= names inputs, as in "x w", not 0'),
        ({"inputs": {"x": "n"}, "attributes": {"eps": []}}, "there is no value to draw"),
        ({"inputs": {"x": "n"}, "attributes": {"forward": 1}}, "'forward': that is taken"),
        ({"inputs": {"x": "n"}, "attributes": {"x": 1}}, "'x': that is taken"),
        ({"inputs": {"x": "n"}, "attributes": {"w": np.ones(2)}}, "'w' is an array"),
        ({"like": lambda *, x: x, "inputs": {"x": "n"}}, "x: inputs are given by position"),
        ({"like": lambda x: {}, "inputs": {"x": "n"}}, "the formula returned a dict"),
        ({"like": lambda x: (), "inputs": {"x": "n"}}, "the formula returned nothing"),
        ({"like": lambda x: x if x.sum() else -x, "inputs": {"x": "n"}}, "may not branch"),
        ({"inputs": {"x": "n"}, "outputs": 2}, "outputs=2: .* has 1 at most"),
        ({"inputs": {"x": "n d"}, "wrt": "w"}, "wrt= names 'w', .* an input of real numbers"),
        ({"inputs": {"x": "n"}, "attributes": {"eps": 1.0}, "like": lambda x: x},
         "attributes= names 'eps'"),
        ({"inputs": {"x": "n"}, "attributes": {"eps": 1.0}, "like": lambda x, eps: x},
         None),
        ({"inputs": {"x": Input("n", dtype="float32")}}, "the first real input, x,"),
        ({"like": np.median, "inputs": {"a": "n"}}, r"numpy\.median"),
        ({"like": lambda x: x.__setitem__(0, 1.0), "inputs": {"x": "n"}}, "read-only"),
        ({"like": lambda x: None, "inputs": {"x": "n"}}, "the formula returned None"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_says_what_does(options: dict[str, Any], words: str | None) -> None:
    with pytest.raises((TypeError, ValueError, Fault), match=words):
        _check(**options)


@pytest.mark.parametrize(
    ("described", "words"),
    [
        ({"values": "postive"}, "no value regime 'postive': did you mean positive"),
        ({"dtype": "int46"}, "no dtype 'int46': did you mean int64"),
        ({"dtype": "int64"}, "needs below="),
        ({"dtype": "int8", "below": 300}, "numbers below 300 are more than int8 has"),
        ({"dtype": "bool", "below": 2}, "below= is of whole numbers"),
        ({"below": 3, "values": "normal"}, "leave one out"),
        ({"below": "..."}, "a number or one axis"),
        ({"below": 2.5}, "below= is a whole number"),
        ({"values": ["uniform", 0, 1]}, r'or \("uniform", 0, 1\) say'),
        ({"dtype": torch.int8}, "no dtype torch.int8"),
        ({"values": ("scaled", 0.003)}, r"values=\(.scaled., 0.003\): "),
    ],
)
def test_an_input_that_makes_no_sense_says_what_does(described: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        Input("n d", **described)


def test_fourteen_axes_and_a_product_that_is_cut() -> None:
    names = "abcdefghijklmn"
    made = operator_of(lambda x, y: x, {"x": " ".join(names), "y": "n*m*l"})
    for case in drawn(cases(made, "float32"), 5):
        assert all(np.prod(shape) <= 132_000 for shape in case.shapes if shape)


def test_a_reduced_case_keeps_what_was_said_of_its_axes() -> None:
    """A kernel of fixed tiles is never called with others while its fault is reduced."""
    met = set()

    def tiled(x: Any, i: Any) -> Any:
        met.add(tuple(x.shape))
        if x.shape[0] > 7:
            raise RuntimeError("more than seven rows")
        return torch.tanh(x) + i.sum()

    with pytest.raises(Fault, match="more than seven rows"):
        d5test.check(
            tiled,
            like=lambda x, i: np.tanh(x) + i.sum(),
            inputs={"x": "n 2*d", "i": Input("d//2", below="d")},
            sizes={"d": (16, 32)},
            backend="torch",
        )
    assert {side for _, side in met} <= {32, 64}
    assert min(n for n, _ in met if n > 7) == 8


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_mask_by_infinity_leaves_no_gradient_unjudged(seed: int) -> None:
    """All of each gradient has a bar, so that a detached value is found."""

    def detached(q: Any, k: Any, v: Any) -> Any:
        return attended(q, k, v.detach())

    options: dict[str, Any] = {"inputs": dict.fromkeys("qkv", "b h n d"), "backend": "torch"}
    for like in (causal, lambda q, k, v: _masked(q, k) @ v):
        with pytest.raises(Fault, match="gradient of input v"):
            d5test.check(detached, like=like, dtypes="float32", seed=seed, **options)


def _masked(q: Any, k: Any) -> Any:
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    n = scores.shape[-1]
    return Softmax(axis=-1)(scores + np.where(np.triu(np.ones((n, n)), 1), -np.inf, 0.0))[0]


@pytest.mark.parametrize("seed", [5, 6])
def test_what_underflows_on_the_way_accuses_nobody(seed: int) -> None:
    """Weights of 1e-43 have few bits left, by which upstream gradients of 1e6 are multiplied."""

    def weighted(scores: Any, v: Any) -> Any:
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v

    d5test.check(
        lambda q, k, v, s: torch.softmax(
            q @ k.mT + s[:, None, None] * torch.arange(k.shape[-2], dtype=q.dtype), -1
        ) @ v,
        like=lambda q, k, v, s: weighted(
            q @ np.swapaxes(k, -1, -2) + s[:, None, None] * np.arange(k.shape[-2]), v
        ),
        inputs={"q": "h n d", "k": "h m d", "v": "h m e", "s": "h"},
        backend="torch", dtypes="float32", seed=seed,
    )  # fmt: skip


def test_a_formula_of_which_little_can_be_judged_is_an_error() -> None:
    options: dict[str, Any] = {"inputs": {"x": Input("n", values=("huge",))}, "backend": "torch"}
    with pytest.raises(AssertionError, match=r"\d+% of the elements could be|nothing was judged"):
        d5test.check(lambda x: x * x / x, like=lambda x: x * x / x, dtypes="float32", **options)


def test_each_gradient_has_to_be_judged() -> None:
    """That of `s` is infinite; those of `x`, which are many, do not stand for it."""
    options: dict[str, Any] = {
        "like": lambda x, s: x * 2 + np.sqrt(s),
        "inputs": {"x": "3 n d", "s": Input("d", values=("constant", 0.0))},
        "backend": "torch",
        "dtypes": "float32",
    }
    with pytest.raises(Untested, match=r"only 0% of the gradient of input s could .* wrt="):
        d5test.check(lambda x, s: x * 2 + torch.sqrt(s.detach()), **options)
    d5test.check(lambda x, s: x * 2 + torch.sqrt(s.detach()), wrt="x", **options)


SUM: dict[str, Any] = {
    "like": lambda x: x.sum(-1),
    "inputs": {"x": Input("n d", values="positive")},
    "backend": "torch",
    "dtypes": "bfloat16",
    "wrt": "",
}


def added(x: Any, factor: float = 1.02) -> Any:
    return (factor * x.float().sum(-1)).bfloat16()


def test_who_computes_in_float32_is_held_to_it() -> None:
    """Eight roundings to bfloat16 are a 32nd of a sum, one is a 256th."""
    options = {**SUM, "sizes": {"d": 8}}
    d5test.check(partial(added, factor=1.0), arithmetic="F", **options)
    d5test.check(added, **options)
    with pytest.raises(Fault, match="outside class F, inside class S"):
        d5test.check(added, arithmetic="F", **options)
    with pytest.raises(ValueError, match="in 16 bits there are F: only the output is rounded"):
        d5test.check(added, arithmetic="f", **options)


def test_where_bars_of_16_bits_are_too_wide_it_is_said_what_narrows_them() -> None:
    with pytest.raises(Untested, match='arithmetic="F" says so'):
        d5test.check(added, **SUM, sizes={"d": 4096})


@pytest.mark.parametrize("seed", range(3))
def test_an_epsilon_in_another_place_is_found_in_16_bits(seed: int) -> None:
    def normalised(x: Any, w: Any, outside: float = 0.0) -> Any:
        h = x.float()
        scale = ((h * h).mean(-1, keepdim=True) + 1e-5 * (not outside)).sqrt() + outside
        return (h / scale * w.float()).to(x.dtype)

    options: dict[str, Any] = {
        "like": lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w,
        "inputs": {"x": Input("... d", values=["normal", ("scaled", -8)]), "w": "d"},
        "backend": "torch", "dtypes": "bfloat16", "seed": seed, "arithmetic": "F",
    }  # fmt: skip
    d5test.check(normalised, **options)
    with pytest.raises(Fault, match=r"outside class F|the result is wrong"):
        d5test.check(partial(normalised, outside=1e-5), **options)


def test_a_formula_without_a_derivative_at_zero_is_not_accused() -> None:
    """The chain rule of a norm is 0 / 0 there; rows of zeros are drawn by default."""
    d5test.check(
        lambda x: torch.sqrt((x * x).sum(-1)), like=lambda x: np.sqrt((x * x).sum(-1)),
        inputs={"x": "n d"}, backend="torch",
    )  # fmt: skip


def test_the_forward_alone() -> None:
    options: dict[str, Any] = {"inputs": {"x": "n"}, "backend": "torch"}
    like = lambda x: np.tanh(x) * 2  # noqa: E731
    d5test.check(lambda x: torch.tanh(x.detach()) * 2, like=like, wrt="", **options)
    with pytest.raises(Fault):
        d5test.check(lambda x: torch.tanh(x.detach()) * 2, like=like, **options)
