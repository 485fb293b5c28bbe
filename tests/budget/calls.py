"""Calling an operator through d5test against the same framework call by hand.

The worker's own `Timing` runs in this process, on the same tensors as the loop by hand, which is
called from where the worker calls its own: TensorFlow's Add takes 0.1 us more for each of Python's
frames above it, up to some 20, and then 1 us less. CPU seconds of both: the frameworks compute in
this process too.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

from d5test.case import Operator
from d5test.client.client import InProcessClient
from d5test.client.messages import Feed
from d5test.reference.operators import OPERATORS
from d5test.worker.timing import Rounds
from tests.budget.measure import AGAIN, OURS, THEIRS, Clock, Line, difference, in_turn, ratio

LONG = 100e-6
"""Seconds above which a call is judged by the ratio."""
MORE, RATIO = 150.0, 1.03
Loop = Callable[..., tuple[list[Any], float, float, int]]
"""See `Rounds._timed`."""


@dataclass(frozen=True)
class Subject:
    """An operator, its inputs' shapes, and what a user of the framework would write.

    `whole` is a last input of whole numbers, which are an argument in the framework.
    """

    op: Operator
    shapes: tuple[tuple[int, ...], ...]
    by_hand: Callable[..., Any]
    whole: tuple[int, ...] | None = None


def lines() -> Iterator[Line]:
    """One for each call of each framework."""
    for backend, subjects in (("torch", _torch), ("jax", _jax), ("tensorflow", _tensorflow)):
        client = InProcessClient(backend)
        client.about  # noqa: B018 - the framework is imported now
        for subject in subjects():
            yield line(client, subject)


def line(client: InProcessClient, subject: Subject) -> Line:
    """The difference of a tiny call, the ratio of a long one."""
    random = np.random.default_rng(0)
    arrays = tuple(random.standard_normal(s).astype(np.float32) for s in subject.shapes)
    if subject.whole is not None:
        arrays += (np.array(subject.whole),)
    loops = client.start_timing(subject.op, [Feed(arrays)])
    timing = client._requests.timing
    wait = client._requests.execution.backend.wait
    tensors = timing._placed[0].tensors[: len(subject.shapes)]
    hand = in_place(timing, by_hand(subject.by_hand, tensors, loops, wait))
    arms = {OURS: lambda: timing.round()[1], THEIRS: hand, AGAIN: hand}
    times = in_turn(arms, rounds=201, seconds=3.5)
    client.stop_timing()
    shapes = " ".join("x".join(map(str, shape)) or "scalar" for shape in subject.shapes)
    what = f"calling {subject.op!r} on {shapes}, {client.name}"
    if float(np.median(times[THEIRS])) > LONG:
        return ratio(what, times, RATIO)
    return difference(what, times, MORE)


def by_hand(
    function: Callable[..., Any],
    tensors: Sequence[Any],
    loops: int,
    wait: Callable[[Sequence[Any]], None],
) -> Loop:
    """A loop as anybody would write it, the device waited for once, in time."""
    turns = range(loops)

    def timed(*_: Any) -> tuple[list[Any], float, float, int]:
        start = time.process_time()
        for _ in turns:
            result = function(*tensors)
        wait([result])
        return [result], 0.0, time.process_time() - start, 0

    return timed


def in_place(timing: Rounds, loop: Loop) -> Clock:
    """The CPU seconds of a call, in a loop that stands where that of the rounds does."""

    def clock() -> float:
        with patch.object(timing, "_timed", loop):
            return timing.round()[1]

    return clock


def _torch() -> Iterator[Subject]:
    import torch
    import torch.nn.functional as F

    def convolve(x: Any, w: Any, b: Any) -> Any:
        return F.conv2d(x, w, b, padding=1)

    def normalise(x: Any) -> Any:
        return F.softmax(x, dim=-1)

    def pool(x: Any) -> Any:
        return F.max_pool2d(x, 3, 2, 1)

    def standardise(x: Any, scale: Any, b: Any) -> Any:
        return F.layer_norm(x, (5,), scale, b)

    def mean(x: Any) -> Any:
        return torch.mean(x, (0, 2))

    def reshape(x: Any) -> Any:
        return torch.reshape(x, (3, -1))

    conv = OPERATORS["Conv"](kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    halved = OPERATORS["MaxPool"](kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    torch.set_num_threads(1)
    yield Subject(OPERATORS["Add"](), ((2,), (2,)), torch.add)
    yield Subject(OPERATORS["Relu"](), ((2,),), torch.relu)
    yield Subject(OPERATORS["Softmax"](), ((2, 3),), normalise)
    yield Subject(conv, ((1, 2, 5, 4), (3, 2, 3, 3), (3,)), convolve)
    yield Subject(halved, ((1, 2, 5, 4),), pool)
    yield Subject(OPERATORS["LayerNormalization"](), ((2, 3, 5), (5,), (5,)), standardise)
    yield Subject(OPERATORS["ReduceMean"](keepdims=0), ((2, 3, 5),), mean, whole=(0, 2))
    yield Subject(OPERATORS["Reshape"](), ((2, 3, 5),), reshape, whole=(3, -1))
    yield Subject(conv, ((8, 16, 32, 32), (32, 16, 3, 3), (32,)), convolve)
    yield Subject(OPERATORS["MatMul"](), ((384, 384), (384, 384)), torch.matmul)


def _jax() -> Iterator[Subject]:
    import jax.numpy as jnp
    from jax import lax

    def convolve(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), ((1, 1), (1, 1)))

    conv = OPERATORS["Conv"](kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    yield Subject(OPERATORS["Add"](), ((2,), (2,)), jnp.add)
    yield Subject(conv, ((1, 2, 5, 4), (3, 2, 3, 3)), convolve)
    yield Subject(OPERATORS["MatMul"](), ((384, 384), (384, 384)), jnp.matmul)


def _tensorflow() -> Iterator[Subject]:
    import tensorflow as tf

    def mean(x: Any) -> Any:
        return tf.reduce_mean(x, (0, 2))

    yield Subject(OPERATORS["ReduceMean"](keepdims=0), ((2, 3, 5),), mean, whole=(0, 2))
    yield Subject(OPERATORS["Add"](), ((2,), (2,)), tf.add)
    yield Subject(OPERATORS["MatMul"](), ((384, 384), (384, 384)), tf.matmul)
