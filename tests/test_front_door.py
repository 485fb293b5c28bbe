"""`d5test.check` and `d5test.judge` in somebody else's test."""

import ast
import re
import subprocess
import sys
import warnings
from functools import partial, wraps
from typing import Any

import numpy as np
import pytest

import d5test
from d5test import front_door
from d5test.case import Case, Tensor
from d5test.checks import CHECKS, Fault
from d5test.client.messages import UnknownBackend
from d5test.front_door import Untested
from d5test.reference.operators import OPERATORS
from d5test.worker.public_names import callers, public_names

Softmax, MatMul, Add = OPERATORS["Softmax"], OPERATORS["MatMul"], OPERATORS["Add"]
Relu, Gelu, LeakyRelu = OPERATORS["Relu"], OPERATORS["Gelu"], OPERATORS["LeakyRelu"]
LayerNormalization = OPERATORS["LayerNormalization"]


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def slope(grads: Any, inputs: Any, outputs: Any) -> Any:
    (dy,), (y,) = grads, outputs
    return y * (dy - (dy * y).sum(-1, keepdims=True))


def test_a_right_function_is_right() -> None:
    d5test.check(softmax, like=Softmax(axis=-1))
    d5test.check(softmax, like=Softmax(axis=-1), gradient=slope)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x: softmax(x) * x.dtype.type(1 + 1e-5), "value"),
        (lambda x: softmax(x).astype(np.float32), "dtype"),
        (lambda x: np.zeros_like(x), "value"),
        (lambda x: softmax(x)[..., None], "shape"),
        (lambda x: softmax(x)[0, 0, 0, 0, 0, 0], "exception"),
    ],
)
def test_a_wrong_function_is_a_fault(function: Any, kind: str) -> None:
    with pytest.raises(Fault, match="Softmax") as caught:
        d5test.check(function, like=Softmax(axis=-1))
    assert caught.value.kind == kind
    assert isinstance(caught.value, AssertionError)


def test_a_wrong_gradient_is_a_fault() -> None:
    with pytest.raises(Fault) as caught:
        d5test.check(softmax, like=Softmax(axis=-1), gradient=lambda dy, _, y: y[0] * dy[0])
    assert caught.value.kind == "gradient"


def test_an_array_given_twice_has_the_sum_of_both_gradients() -> None:
    def gradient(grads: Any, inputs: Any, outputs: Any) -> Any:
        (dy,), (a, b) = grads, inputs
        return tuple(
            dy.sum(tuple(range(dy.ndim - x.ndim)), keepdims=False).reshape(-1, *x.shape).sum(0)
            if x.shape == dy.shape[dy.ndim - x.ndim :]
            else _unbroadcast(dy, x.shape)
            for x in (a, b)
        )

    d5test.check(np.add, like=Add(), gradient=gradient)


def _unbroadcast(dy: Any, shape: tuple[int, ...]) -> Any:
    dy = dy.sum(tuple(range(dy.ndim - len(shape))))
    axes = tuple(i for i, side in enumerate(shape) if side == 1)
    return dy.sum(axes, keepdims=True).reshape(shape)


def test_attributes_of_a_class_are_drawn() -> None:
    seen = set()

    def along(x: Any, axis: int) -> Any:
        seen.add(axis)
        return np.moveaxis(softmax(np.moveaxis(x, axis, -1)), -1, axis)

    d5test.check(along, like=Softmax)
    assert len(seen) > 1


def test_a_backend_differentiates() -> None:
    torch = pytest.importorskip("torch")
    d5test.check(lambda x: torch.softmax(x, -1), like=Softmax(axis=-1), backend="torch")

    with pytest.raises(Fault) as caught:
        d5test.check(
            lambda x: 2 * torch.softmax(x, -1) - torch.softmax(x, -1).detach(),
            like=Softmax(axis=-1), backend="torch",
        )  # fmt: skip
    assert caught.value.kind == "gradient"


@pytest.mark.parametrize("epsilon", [1e-5, float(np.float32(1e-5))])
def test_an_attribute_is_known_to_32_bits(epsilon: float) -> None:
    d5test.check(layer_norm(epsilon), like=LayerNormalization(), outputs=1)
    d5test.check(layer_norm(epsilon), like=LayerNormalization(epsilon=1e-5), outputs=1)


@pytest.mark.parametrize("epsilon", [1.1e-5, 1e-5 + 4e-12, 0.0])
def test_and_to_no_bit_less(epsilon: float) -> None:
    with pytest.raises(Fault) as caught:
        d5test.check(layer_norm(epsilon), like=LayerNormalization(), outputs=1, dtypes="float64")
    assert caught.value.kind == "value"


def layer_norm(epsilon: float) -> Any:
    def normalise(x: Any, scale: Any, b: Any = None) -> Any:
        d = x - x.mean(-1, keepdims=True)
        y = d / np.sqrt((d * d).mean(-1, keepdims=True) + x.dtype.type(epsilon)) * scale
        return y if b is None else y + b

    return normalise


def test_drawn_attributes_are_handed_over_and_have_no_error() -> None:
    def leaky(x: Any, alpha: float, error: float = 0.0) -> Any:
        return np.where(x < 0, x.dtype.type(alpha + error) * x, x)

    d5test.check(leaky, like=LeakyRelu, dtypes="float64")
    d5test.check(lambda x: leaky(x, 0.01), like=LeakyRelu(), dtypes="float64")
    with pytest.raises(Fault):
        d5test.check(lambda x, alpha: leaky(x, alpha, 2e-10), like=LeakyRelu, dtypes="float64")


def test_the_backends_row_is_granted_what_it_was_accepted_with() -> None:
    torch = pytest.importorskip("torch")
    gelu = torch.nn.GELU()
    everywhere = ("float64", "float32", "float16", "bfloat16")
    d5test.check(gelu, like=Gelu(), backend="torch", dtypes=everywhere, examples=60)
    with pytest.raises(Fault) as caught:
        d5test.check(lambda x: 1.00001 * gelu(x), like=Gelu(), backend="torch")
    assert caught.value.kind == "value"


def test_a_function_that_writes_into_its_input_is_refused() -> None:
    def in_place(x: Any) -> Any:
        x -= x.max(-1, keepdims=True)
        return softmax(x)

    with pytest.raises(Fault, match=r"which +input 0, element \[\d") as caught:
        d5test.check(in_place, like=Softmax())
    assert caught.value.kind == "mutated"


def test_a_gradient_that_writes_into_the_upstream_one_is_refused() -> None:
    def gradient(grads: Any, inputs: Any, outputs: Any) -> Any:
        (dy,), (y,) = grads, outputs
        dy *= y
        return dy - y * dy.sum(-1, keepdims=True)

    with pytest.raises(Fault, match=r"which +upstream gradient 0, element \[\d") as caught:
        d5test.check(softmax, like=Softmax(), gradient=gradient)
    assert caught.value.kind == "mutated"


def test_a_function_that_returns_one_buffer_again_and_again_is_refused() -> None:
    buffers: dict[Any, Any] = {}

    def relu(x: Any) -> Any:
        out = buffers.setdefault((x.shape, x.dtype), np.empty_like(x))
        return np.maximum(x, 0, out=out)

    with pytest.raises(Fault) as caught:
        d5test.check(relu, like=Relu())
    assert caught.value.kind == "overwritten"


def test_a_fault_shows_small_inputs_and_the_users_traceback() -> None:
    def deep(x: Any) -> Any:
        raise KeyError("no such row")

    def mine(x: Any) -> Any:
        return deep(x)

    with pytest.raises(Fault) as caught:
        d5test.check(mine, like=Softmax())
    lines = str(caught.value).splitlines()
    (at,) = (i for i, line in enumerate(lines) if line.startswith("  raised "))
    assert lines[at].endswith("KeyError in call: 'no such row'")
    assert lines[at + 1].endswith(", in mine")
    assert "return deep(x)" in lines[at + 2]
    assert f'File "{__file__}", line ' in lines[at + 1]
    assert any(line.endswith(", in deep") for line in lines)
    assert sum("File " in line for line in lines) == 2, "frames of ours are left out"
    x = caught.value.evidence.feeds[0].inputs[0]
    (shown,) = (line for line in lines if line.startswith("  input 0 "))
    assert np.array_equal(np.array(ast.literal_eval(shown.split(maxsplit=2)[2])), x)


def test_an_interrupt_ends_it_at_once() -> None:
    calls = []

    def interrupted(x: Any) -> Any:
        calls.append(x)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        d5test.check(interrupted, like=Relu())
    assert len(calls) == 1


def test_a_function_that_ends_the_process_is_a_fault() -> None:
    with pytest.raises(Fault, match="SystemExit in call: 3"):
        d5test.check(lambda x: sys.exit(3), like=Relu())


@pytest.mark.parametrize(
    "gradient", [None, lambda grads, inputs, outputs: "no gradient"], ids=["outputs", "gradients"]
)
def test_what_holds_no_numbers_is_shown(gradient: Any) -> None:
    function = (lambda x: None) if gradient is None else softmax
    with pytest.raises(Fault, match=r"what it returned cannot be read.*(\n.*)* array of numbers"):
        d5test.check(function, like=Softmax(), gradient=gradient)


def test_a_mapping_of_results_is_read() -> None:
    d5test.check(lambda x: {"y": softmax(x)}, like=Softmax(), dtypes="float32")


def test_a_class_wants_a_function_of_its_attributes() -> None:
    with pytest.raises(TypeError, match=r"take axis as keyword .* give like=Softmax\(\)"):
        d5test.check(lambda x: x, like=Softmax)


def test_too_few_results_are_told_how_to_say_so() -> None:
    with pytest.raises(Fault, match=r"want +3, or outputs=1 if these are the first of them"):
        d5test.check(layer_norm(1e-5), like=LayerNormalization())


def flushed(x: Any) -> Any:
    """The positive part; subnormal numbers are zero."""
    y = np.maximum(x, 0)
    return np.where(np.abs(y) < np.finfo(x.dtype).smallest_normal, 0, y)


WORDED: list[tuple[Any, Any, str, dict[str, Any]]] = [
    (softmax, Softmax(), "^None for the gradient of input 0, which means zero$",
     {"gradient": lambda grads, inputs, outputs: (None,)}),
    (lambda x: (softmax(x), x), Softmax(), "^2 outputs of Softmax .* than outputs=1 allows$",
     {"outputs": 1}),
    (lambda x, alpha: np.where(x < 0, x.dtype.type(alpha + 2e-10) * x, x), LeakyRelu,
     r"as ONNX stores them; like=LeakyRelu\(...\) with fixed attributes allows that$",
     {"dtypes": "float64"}),
]  # fmt: skip


@pytest.mark.parametrize(("function", "like", "text", "arguments"), WORDED)
def test_a_message_speaks_of_no_row(
    function: Any, like: Any, text: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(Fault) as caught:
        d5test.check(function, like=like, **arguments)
    assert any(re.search(text, detail) for detail in caught.value.details.values())
    assert not re.search(r"\brow\b", str(caught.value))


def test_a_result_that_flushes_is_told_of_no_row() -> None:
    client = front_door._client(flushed, Relu(), front_door.Functions(None), None, ("float32",))
    tiny = Tensor((2,), data=(1e-40, 3.0))
    with pytest.raises(Fault) as caught:
        CHECKS["forward"].run(client, Case(Relu(), (tiny,)))
    assert re.search(r"\bzero\b[^;]*$", caught.value.details["right"])


def test_what_a_framework_returns_is_told_of_no_row() -> None:
    pytest.importorskip("torch")
    with pytest.raises(Fault, match=r"  a builtins.dict was returned as output 0, not a torch.Te"):
        d5test.check(lambda x: {"y": x}, like=Relu(), backend="torch")


@pytest.mark.parametrize(
    ("function", "refused", "given", "backend"),
    [
        (lambda x: np.soft_max(x), False, True, None),
        (lambda x: np.soft_max(x), False, False, "numpy"),
        (lambda x: nowhere(x), False, False, None),  # type: ignore[name-defined] # noqa: F821
        (lambda x: x[0, 0, 0, 0, 0, 0], True, False, None),
        (lambda x: x(1), True, True, None),
        (lambda x: x(1), True, False, "numpy"),
    ],
)
def test_an_exception_is_told_what_may_be_done(
    function: Any, refused: bool, given: bool, backend: str | None
) -> None:
    with pytest.raises(Fault, match="valid inputs raise") as caught:
        d5test.check(function, like=Relu(), backend=backend)
    details = caught.value.details
    assert ("d5test.Unsupported" in details.get("refused", "")) is refused
    assert ("NumPy arrays; backend=" in details.get("given", "")) is given


class Squashing:
    def __call__(self, x: Any) -> Any:
        return x

    def method(self, x: Any) -> Any:
        return x

    @classmethod
    def of_class(cls, x: Any) -> Any:
        return x

    @staticmethod
    def static(x: Any) -> Any:
        return x


class Harder(Squashing):
    pass


def local() -> Any:
    def inner(x: Any) -> Any:
        return x

    return inner


LINE = local.__code__.co_firstlineno + 8
unnamed = lambda x: x  # noqa: E731
wrapped = wraps(unnamed)(lambda *inputs: unnamed(*inputs))
NAMES: list[tuple[Any, str]] = [
    (softmax, "softmax"),
    (local(), "inner"),
    (np.exp, "exp"),
    (abs, "abs"),
    (Squashing(), "Squashing"),
    (Squashing().method, "Squashing.method"),
    (Harder.of_class, "Harder.of_class"),
    (Squashing.static, "Squashing.static"),
    (partial(softmax), "partial(softmax)"),
    (partial(unnamed), f"partial(the lambda at test_front_door.py:{LINE})"),
    (unnamed, f"the lambda at test_front_door.py:{LINE}"),
    (wrapped, f"the lambda at test_front_door.py:{LINE}"),
]


@pytest.mark.parametrize(("function", "name"), NAMES)
def test_a_function_is_named_as_its_author_knows_it(function: Any, name: str) -> None:
    assert front_door.name_of(function) == name


def test_a_headline_names_the_class_of_a_method() -> None:
    with pytest.raises(Fault, match=r"the result is wrong on Harder\.of_class with numpy"):
        d5test.check(Harder.of_class, like=Relu())


def unbiased(x: Any, scale: Any) -> Any:
    raise d5test.Unsupported("rightly called")


class Called:
    def forward(self, *inputs: Any) -> Any:
        raise NotImplementedError

    def __call__(self, *inputs: Any) -> Any:
        return self.forward(*inputs)


class Layer(Called):
    """Is called as torch's layers are."""

    def forward(self, x: Any, scale: Any) -> Any:
        return self.scaled(x)

    def scaled(self, x: Any, scale: Any) -> Any:
        return x * scale


@pytest.mark.parametrize(
    ("function", "like", "inputs"),
    [
        (lambda x: x, OPERATORS["ReduceMax"](), r"ReduceMax, \(x, axes=None\)"),
        (lambda x, *, keepdims, noop_with_empty_axes: x, OPERATORS["ReduceMax"],
         r"ReduceMax, \(x, axes=None\): one that is absent is None, or left out at the end$"),
        (unbiased, LayerNormalization(), r"LayerNormalization, \(x, scale, b=None\)"),
        (lambda x, scale, b: unbiased(x, scale), LayerNormalization(),
         r"LayerNormalization, \(x, scale, b=None\)"),
        (Layer(), OPERATORS["ReduceMax"](), ""),
        (lambda x, axes: unbiased(x), OPERATORS["ReduceMax"](), ""),
        (Layer(), Relu(), r"Relu, \(x\)$"),
    ],
)  # fmt: skip
def test_a_wrong_number_of_parameters_is_told_of_the_inputs(
    function: Any, like: Any, inputs: str
) -> None:
    with pytest.raises(Fault, match=r"raised +TypeError in call: .*argument") as caught:
        d5test.check(function, like=like, outputs=1)
    told = re.search(
        r"it is called with the inputs of (.*)$", caught.value.details["raised"], re.MULTILINE
    )
    assert bool(told) == bool(inputs)
    assert told is None or re.match(inputs, told[1])


def test_nothing_judged_is_an_error() -> None:
    def refused(x: Any) -> Any:
        raise d5test.Unsupported("not today")

    with pytest.raises(Untested, match="not today"):
        d5test.check(refused, like=Softmax())


@pytest.mark.parametrize(
    ("error", "text", "arguments"),
    [
        (ValueError, "no dtype 'float8' is judged; there are float64, ", {"dtypes": ("float8",)}),
        (ValueError, "no dtype 'float8' is judged; there are float64, ", {"dtypes": "float8"}),
        (ValueError, "no dtype <class 'numpy.float32'> is judged", {"dtypes": np.float32}),
        (ValueError, "dtypes= is empty; there are float64, ", {"dtypes": ()}),
        (ValueError, "gradient= or backend=", {"gradient": slope, "backend": "numpy"}),
        (TypeError, r"gradient= is a function of \(grads, inputs, outputs\), not 3",
         {"gradient": 3}),
        (ValueError, "examples= is a whole number of at least 1, not 0", {"examples": 0}),
        (ValueError, "examples= is a whole number of at least 1, not 2.5", {"examples": 2.5}),
        (ValueError, "outputs= is a whole number of at least 1, not 0", {"outputs": 0}),
        (ValueError, "outputs=2: Softmax has 1 at most", {"outputs": 2}),
        (ValueError, "no backend 'torhc'; did you mean torch", {"backend": "torhc"}),
        (ValueError, "names another interpreter", {"backend": f"numpy@{sys.executable}"}),
        (TypeError, r"like='Relu' is a name: give the operator itself, like=Relu\(\), from "
                    "`from d5test.reference.operators import Relu`", {"like": "Relu"}),
        (TypeError, r"like='SoftMax' is a name: .* like=Softmax\(\)", {"like": "SoftMax"}),
        (TypeError, 'like=exp is a formula: .* inputs={"x": "n d"}', {"like": np.exp}),
        (TypeError, "like= takes an operator, .* or a formula", {"like": int}),
        (TypeError, "the first argument is the function to check, not 'softmax'",
         {"function": "softmax"}),
    ],
)  # fmt: skip
def test_mistakes_say_what_to_write(
    error: type[Exception], text: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(error, match=text) as caught:
        d5test.check(**{"function": softmax, "like": Softmax(), **arguments})
    assert type(caught.value) in (TypeError, ValueError, UnknownBackend)


def test_a_single_dtype_needs_no_tuple() -> None:
    d5test.check(softmax, like=Softmax(), dtypes="float16")


def test_a_project_whose_warnings_are_errors(pytester: pytest.Pytester) -> None:
    """What NumPy flags on the way is no fault: e^x overflows where the logistic function is 0."""
    pytester.makepyprojecttoml("[tool.pytest.ini_options]\nfilterwarnings = 'error'")
    pytester.makepyfile(
        """
        import numpy as np
        import d5test
        from d5test.reference.operators import Sigmoid, Softmax

        def softmax(x):
            e = np.exp(x - x.max(-1, keepdims=True))
            return e / e.sum(-1, keepdims=True)

        def sigmoid(x):
            e = np.exp(-x)
            return 1 / (1 + e) + 0 / (e * 0 + np.exp(x * 0 + 1000))

        def slope(grads, inputs, outputs):
            (dy,), (y,) = grads, outputs
            return dy * y * (1 - y) / np.exp(-np.exp(dy * 0 + 1000)).clip(1)

        def test_softmax():
            d5test.check(softmax, like=Softmax(axis=-1))

        def test_sigmoid():
            d5test.check(sigmoid, like=Sigmoid(), gradient=slope)
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_names_that_a_framework_deprecates_warn_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deprecated:
        def __getattribute__(self, name: str) -> Any:
            warnings.warn("it is deprecated", FutureWarning, stacklevel=2)
            return object.__getattribute__(self, name)

        def __call__(self) -> None:
            pass

    old = Deprecated()
    monkeypatch.setattr(np, "one_name", old, raising=False)
    monkeypatch.setattr(np, "another_name", old, raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        d5test.check(softmax, like=Softmax(), dtypes="float32", examples=2)
        assert id(old) in public_names("numpy")
        assert callers("numpy")


def test_judge_one_result() -> None:
    x = np.random.default_rng(2).normal(size=(3, 5)).astype(np.float32)
    y = softmax(x)
    right = d5test.judge(Softmax(), [x], [y])
    assert right.right
    assert right.telling
    assert 0 < right.ratio < 1
    off = y.copy()
    off[2, 1] *= 1.001
    wrong = d5test.judge(Softmax(), [x], [off])
    assert wrong.position == (2, 1)
    assert wrong.ratio > 10
    assert not d5test.judge(Softmax(), [x], [y[:2]]).right
    dy = np.random.default_rng(3).normal(size=(3, 5)).astype(np.float32)
    assert d5test.judge(Softmax(), [x], [slope((dy,), (x,), (y,))], grads=[dy]).right
    assert not d5test.judge(Softmax(), [x], [dy], grads=[dy]).right
    with pytest.raises(ValueError, match="no input"):
        d5test.judge(Softmax(), [np.arange(3)], [np.arange(3)])


def test_a_result_may_be_flushed_to_zero() -> None:
    x, y = np.full(2, 2.0**-70, np.float32), np.zeros(2, np.float32)
    assert not d5test.judge(OPERATORS["Mul"](), [x, x], [y]).right
    assert d5test.judge(OPERATORS["Mul"](), [x, x], [y], flushes=True).right


def test_judge_knows_attributes_to_32_bits() -> None:
    rng = np.random.default_rng(5)
    x, scale = rng.normal(size=(3, 5)), rng.normal(size=5)
    for epsilon, right in ((1e-5, True), (float(np.float32(1e-5)), True), (1.1e-5, False)):
        y = layer_norm(epsilon)(x, scale)
        assert d5test.judge(LayerNormalization(), [x, scale], [y]).right is right


def test_importing_d5test_is_light() -> None:
    code = (
        "import sys, d5test; print(sorted(m for m in sys.modules if m.partition('.')[0] in "
        "('numpy', 'torch', 'jax', 'tensorflow', 'hypothesis', 'onnx', 'pytest')))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_public_names_are_there() -> None:
    for name in d5test.__all__:
        assert getattr(d5test, name) is not None
    assert callable(d5test.judge)
    with pytest.raises(AttributeError):
        d5test.nothing  # noqa: B018
