"""What a run of an operator reports, in a worker and in this process alike."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5test.backends.base import Row, Unsupported, planned
from d5test.backends.numpy import Numpy
from d5test.client.client import BackendClient, InProcessClient, WorkerClient
from d5test.client.messages import Feed, Raised
from d5test.reference.operators import OPERATORS
from d5test.worker.bound import Bound, OperatorView
from d5test.worker.wire import Bits
from tests.faults.score import Local

TINY = f"{Path(__file__).with_name('tiny.py')}:"
WRONG = f"{Path(__file__).with_name('wrong_calls.py')}:"
X = np.arange(1, 4, dtype=np.float32)
Y = np.array([5, -7, 11], np.float32)
DY = np.array([0.5, 3, -2], np.float32)


@pytest.fixture(scope="module", params=["worker", "in process", "without fork"])
def kind(request: Any) -> Any:
    makers = {
        "worker": WorkerClient,
        "in process": InProcessClient,
        "without fork": lambda spec: WorkerClient(spec, fork=False),
    }
    return makers[request.param]


@pytest.fixture(scope="module")
def tiny(kind: Any) -> Any:
    with kind(TINY + "Tiny") as client:
        yield client


@pytest.fixture(scope="module")
def wrong(kind: Any) -> Any:
    with kind(WRONG + "Wrong") as client:
        yield client


def test_several_feeds_in_one_request(tiny: BackendClient, ops: Any) -> None:
    feeds = [Feed((X,)), Feed((Y,)), Feed((np.ones((2, 5)),))]
    results = tiny.run(ops.Scale(factor=3.0), feeds)
    for feed, result in zip(feeds, results, strict=True):
        np.testing.assert_array_equal(result.outputs[0], 3 * feed.inputs[0])
        assert result.gradients is None
        assert result.grads_after is None
        assert result.inputs_after[0] is feed.inputs[0]
        assert result.late[0] is result.outputs[0]


def test_gradients_stand_at_the_inputs_places(tiny: BackendClient, ops: Any) -> None:
    (result,) = tiny.run(ops.Mul(), [Feed((X, Y), (DY,))])
    np.testing.assert_array_equal(result.outputs[0], X * Y)
    np.testing.assert_array_equal(result.gradients[0], DY * Y)
    np.testing.assert_array_equal(result.gradients[1], DY * X)
    assert result.grads_after[0] is DY


def test_only_wanted_gradients(tiny: BackendClient, ops: Any) -> None:
    (result,) = tiny.run(ops.Mul(), [Feed((X, Y), (DY,))], wanted=(1,))
    assert result.gradients[0] is None
    np.testing.assert_array_equal(result.gradients[1], DY * X)


def test_one_tensor_passed_twice_has_one_gradient(tiny: BackendClient, ops: Any) -> None:
    feed = Feed((X, X), (DY,), same_as=(None, 0))
    (result,) = tiny.run(ops.Mul(), [feed], wanted=(0, 1))
    np.testing.assert_array_equal(result.gradients[0], 2 * DY * X)
    assert result.gradients[1] is None


def test_reuse_writes_into_the_same_tensors(tiny: BackendClient, ops: Any) -> None:
    feeds = [Feed((X,)), Feed((Y,))]
    first, second = tiny.run(ops.Scale(), feeds, reuse=True)
    np.testing.assert_array_equal(second.outputs[0], 2 * Y)
    np.testing.assert_array_equal(first.late[0], 2 * X)
    even = [Feed((np.arange(4.0),)), Feed((np.arange(4.0, 8),))]
    first, second = tiny.run(ops.Halves(), even, reuse=True)
    np.testing.assert_array_equal(first.late[1], [6, 7])  # a view: written to by the second feed
    np.testing.assert_array_equal(first.outputs[1], [2, 3])


def test_an_output_in_the_next_calls_buffer_is_seen(wrong: BackendClient, ops: Any) -> None:
    first, _ = wrong.run(ops.Act(deed="same buffer"), [Feed((X,)), Feed((Y,))])
    np.testing.assert_array_equal(first.outputs[0], X)
    np.testing.assert_array_equal(first.late[0], Y)


def test_an_overwritten_input_is_seen(wrong: BackendClient, do: Any) -> None:
    result = do(wrong, "overwrite")
    np.testing.assert_array_equal(result.outputs[0], [1, 2, 3])
    np.testing.assert_array_equal(result.inputs_after[0], [7, 2, 3])


def test_an_exception_is_told_with_its_place(wrong: BackendClient, do: Any) -> None:
    with pytest.raises(Raised, match="ValueError in call: no such shape") as caught:
        do(wrong, "raise")
    assert (caught.value.type, caught.value.where) == ("ValueError", "call")
    assert "raise_it" in caught.value.traceback


def test_system_exit_ends_nothing(wrong: BackendClient, do: Any) -> None:
    with pytest.raises(Raised, match="SystemExit in call: 4"):
        do(wrong, "system exit")


def test_unsupported_carries_its_reason(wrong: BackendClient, do: Any, ops: Any) -> None:
    with pytest.raises(Unsupported, match="not for this shape"):
        do(wrong, "unsupported")
    with pytest.raises(Unsupported, match=r"numpy has no row for Nothing"):
        wrong.run(type("Nothing", (type(ops.Mul()),), {})(), [])


@pytest.mark.parametrize(
    ("deed", "text"),
    [
        ("none", r"a builtins.NoneType was returned as output 0, not a numpy.ndarray"),
        ("number", r"a builtins.float was returned as output 0, not a numpy.ndarray"),
        ("nested", r"2 outputs of \w+ were returned, more than outputs=1 allows"),
        ("two", r"2 outputs of Act were returned, more than outputs=1 allows"),
    ],
)
def test_a_wrong_row_is_named(wrong: BackendClient, do: Any, deed: str, text: str) -> None:
    with pytest.raises(Raised, match=text) as caught:
        do(wrong, deed)
    assert caught.value.where == "row"


class WithoutDtype(Numpy):
    """What it reads has no dtype."""

    def get(self, tensor: Any) -> Any:
        return np.asarray(tensor)


def test_a_get_that_returns_no_pair_is_named() -> None:
    client = Local("wrong", WithoutDtype())
    with pytest.raises(Raised, match=r"get returned ndarray, not a pair: a NumPy array, the dtyp"):
        client.run(OPERATORS["Relu"](), [Feed((np.zeros(2, np.float32),))])


class WithList(Numpy):
    """What it reads and the dtype are a list."""

    def get(self, tensor: Any) -> Any:
        return list(super().get(tensor))


def test_a_get_may_return_a_list() -> None:
    (result,) = Local("list", WithList()).run(
        OPERATORS["Relu"](), [Feed((np.ones(2, np.float32),))]
    )
    np.testing.assert_array_equal(result.outputs[0], [1, 1])


def test_a_plan_that_reads_undeclared_values_is_named(tiny: BackendClient, ops: Any) -> None:
    feed = Feed((np.arange(6.0).reshape(2, 3), np.array([1, 0]), np.array(1)))
    (result,) = tiny.run(ops.Take(), [feed])
    np.testing.assert_array_equal(result.outputs[0], [[1, 0], [4, 3]])
    with pytest.raises(Raised, match=r"reads the values of input 2.* add values=\(2,\)") as caught:
        tiny.run(ops.UndeclaredTake(), [feed])
    assert caught.value.where == "row"


def test_sums_that_differ_by_themselves_read_no_values() -> None:
    """As a GPU's atomic additions do: in one of two orders, whatever the plan was made with."""
    order = np.random.default_rng(1)

    @planned
    def total(op: Any, x: Any) -> Any:
        return lambda x: np.array([x.sum() + order.choice([0.0, 1e-15])])

    backend = Numpy()
    bound = Bound(backend, Row(total), OperatorView("Total", {}))
    read = [
        bound.values_read([X], [Y], lambda tensor: Bits(*backend.get(tensor))) for _ in range(200)
    ]
    assert read == [None] * 200


def test_a_vjp_that_forgets_gradients_is_named(wrong: BackendClient, ops: Any) -> None:
    with pytest.raises(Raised, match="vjp returned 0 gradients of Mul, not 2") as caught:
        wrong.run(ops.Mul(), [Feed((X, Y), (DY,))])
    assert (caught.value.where, caught.value.place) == ("row", "vjp")


def test_a_lost_device_is_the_calls_fault_and_is_replaced(ops: Any) -> None:
    with WorkerClient(WRONG + "WrongAddress") as client:
        for x in (X, -X, X, -X, -X, X):
            with pytest.raises(Raised) if x[0] < 0 else nullcontext() as caught:
                (result,) = client.run(ops.Scale(factor=2.0), [Feed((x,))])
                np.testing.assert_array_equal(result.outputs[0], 2 * x)
            if caught is not None:
                assert (caught.value.where, caught.value.place) == ("call", "")
                assert caught.value.type.endswith("Gone")


@pytest.mark.parametrize(
    ("name", "where"), [("WrongGet", "get"), ("WrongStart", "making the backend")]
)
def test_the_plumbing_is_not_the_operator(kind: Any, ops: Any, name: str, where: str) -> None:
    with kind(WRONG + name) as client, pytest.raises(Raised) as caught:
        client.run(ops.Scale(), [Feed((X,))])
    assert (caught.value.type, caught.value.where) == ("RuntimeError", where)


def test_put_that_raises_says_so(tiny: BackendClient, ops: Any) -> None:
    import ml_dtypes

    with pytest.raises(Raised, match="NumPy has no bfloat16") as caught:
        tiny.run(ops.Scale(), [Feed((X.astype(ml_dtypes.bfloat16),))])
    assert caught.value.where == "put"


def test_about(tiny: BackendClient) -> None:
    about = tiny.about
    assert (about.framework, about.version, about.mode) == ("numpy", np.__version__, "eager")
    assert about.base == "", "it is no subclass of what is installed"
    assert about.packages == {"numpy": np.__version__}
    assert about.flushes == {"float64": False, "float32": False, "float16": False}
    assert set(about.rows) == {"Mul", "Scale", "Halves", "Take", "UndeclaredTake"}
    assert about.rows["Mul"].native
    assert about.threads >= 1


def test_compilations_are_counted_and_forgotten(kind: Any, ops: Any) -> None:
    with kind(TINY + "TinyCompiled") as client:
        client.run(ops.Scale(), [Feed((X,)), Feed((Y,)), Feed((X[:2],))])
        client.run(ops.Scale(), [Feed((X,))])
        assert client.compilations() == 2
        client.run(ops.Scale(factor=5.0), [Feed((X,))])
        assert client.compilations() == 3
        client.reset()
        assert client.compilations() == 0
    with kind(TINY + "Tiny") as client:
        assert client.compilations() is None


def test_anything_can_be_invoked_beside_the_backend(tiny: BackendClient) -> None:
    answer = tiny.invoke("tiny:doubled", X, "twice")
    np.testing.assert_array_equal(answer["twice"], 2 * X)
    assert answer["self"] == "numpy"


def test_an_answer_that_cannot_travel_is_an_exception(tiny: BackendClient) -> None:
    with pytest.raises(Raised, match="AttributeError in answer"):
        tiny.invoke("d5test.worker.wire:Bits", "int8")
