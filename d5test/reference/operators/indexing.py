"""Operators that take from places, or put at places, that an input or an order names."""

from dataclasses import dataclass

import numpy as np

from d5test.case import Batch, Operator

__all__ = ["GatherElements", "GatherND", "ScatterElements", "ScatterND"]
__all__ += ["ArgMax", "ArgMin", "Compress", "Hardmax", "OneHot", "TopK"]
__all__ += ["TensorScatter"]


@dataclass(frozen=True, kw_only=True, repr=False)
class GatherElements(Operator):
    """An element for each index along an axis, at the index's own place. ONNX GatherElements-13.

    y[i, j] = data[i, indices[i, j]] along axis 1. indices: the rank of data, and no longer but
    along `axis`; integers, negative ones from the end.
    """

    axis: int = 0
    since = 13

    def forward(self, data, indices):
        return data[elements(data.shape, indices, self.axis)]

    def backward(self, grads, inputs, outputs):
        (dy,), (data, indices) = grads, inputs
        return added(dy, elements(data.shape, indices, self.axis), data.shape), None


@dataclass(frozen=True, kw_only=True, repr=False)
class GatherND(Operator):
    """Entries of data whose places are the rows of `indices`. ONNX GatherND-13.

    data: (*batch, *sizes, *entry), indices: (*batch, *rows, k) integers, negative ones from the
    end, of which each counts along one of the k `sizes`; y: (*batch, *rows, *entry). `batch_dims`
    is the number of axes in batch.
    """

    batch_dims: int = 0
    since = 13

    def forward(self, data, indices):
        return data[entries(data.shape, indices, self.batch_dims)]

    def backward(self, grads, inputs, outputs):
        (dy,), (data, indices) = grads, inputs
        return added(dy, entries(data.shape, indices, self.batch_dims), data.shape), None


@dataclass(frozen=True, kw_only=True, repr=False)
class Scatter(Operator):
    """A copy of data, in which `updates` replace what stands at the places of `indices`.

    With a `reduction` ("add", "mul", "max", "min") they are combined with it, and places may be
    named more than once.
    """

    reduction: str = "none"
    since = 18

    def places(self, shape, indices):
        """For each axis that is indexed the index of each update."""
        raise NotImplementedError(f"{self.name} says no `places(shape, indices)`")

    def steps(self, places, data, updates):
        """The places of each turn, what stands there before it, and which updates it makes."""
        y, (combined, _) = data.copy(), COMBINED[self.reduction]
        for turn in turns(places, data.shape):
            at = tuple(index[turn] for index in places)
            before = y[at]
            yield at, before, turn
            y[at] = combined(before, updates[turn])

    def forward(self, data, indices, updates):
        places, y = self.places(data.shape, indices), data.copy()
        if self.reduction == "none":
            y[places] = updates
        elif self.reduction == "add":
            np.add.at(y, places, updates)
        else:
            combined, _ = COMBINED[self.reduction]
            for at, before, turn in self.steps(places, data, updates):
                y[at] = combined(before, updates[turn])
        return y

    def backward(self, grads, inputs, outputs):
        (dy,), (data, indices, updates) = grads, inputs
        places, dx = self.places(data.shape, indices), dy.copy()
        dupdates = dy[places]
        if self.reduction == "none":
            dx[places] = 0.0
        elif self.reduction != "add":
            _, pulled = COMBINED[self.reduction]
            for at, before, turn in reversed([*self.steps(places, data, updates)]):
                dx[at], dupdates[turn] = pulled(dx[at], before, updates[turn])
        return dx, None, dupdates

    def other_backward(self, grads, inputs):
        """The product of the others as the whole, divided by each."""
        if self.reduction != "mul":
            return None
        (dy,), (data, indices, updates) = grads, inputs
        places, dproduct = self.places(data.shape, indices), dy * self.forward(*inputs)
        return dproduct / data, None, dproduct[places] / updates


COMBINED = {
    "mul": (np.multiply, lambda dz, x, y: (dz * y, dz * x)),
    "max": (np.maximum, lambda dz, x, y: to_either(x >= y, dz)),
    "min": (np.minimum, lambda dz, x, y: to_either(x <= y, dz)),
}
"""z of x and y, one after another; and what flows to both."""


def to_either(first, dz):
    """To the first where that is chosen, to the second elsewhere."""
    return np.where(first, dz, 0.0), np.where(first, 0.0, dz)


@dataclass(frozen=True, kw_only=True, repr=False)
class ScatterElements(Scatter):
    """Elements put where GatherElements takes them from. ONNX ScatterElements-18.

    indices, updates: of one shape, with the rank of data, and no longer but along `axis`.
    """

    axis: int = 0

    def places(self, shape, indices):
        return elements(shape, indices, self.axis)


@dataclass(frozen=True, kw_only=True, repr=False)
class ScatterND(Scatter):
    """Entries put where GatherND takes them from. ONNX ScatterND-18.

    data: (*sizes, *entry), indices: (*rows, k), updates: (*rows, *entry).
    """

    def places(self, shape, indices):
        return entries(shape, indices)


def added(dy, places, shape):
    """Zeros, to which the gradients dy are added at places."""
    dx = np.zeros_like(dy, shape=shape)
    np.add.at(dx, places, dy)
    return dx


def elements(shape, indices, axis):
    """The places along all axes of which `indices` are those along one."""
    places = list(np.indices(indices.shape))
    places[axis] = from_the_front(indices, shape[axis])
    return tuple(places)


def entries(shape, indices, batch_dims=0):
    """The places that are rows of `indices`, behind their own along the axes of the batch."""
    own = np.indices(indices.shape[:-1])[:batch_dims]
    named = np.moveaxis(indices, -1, 0)
    return *own, *map(from_the_front, named, shape[batch_dims:])


def from_the_front(index, size):
    """An index, where negative ones count from the end."""
    return np.where(index < 0, index + size, index)


def turns(places, shape):
    """Which updates are made in each turn: none has a place twice, and each is made in one."""
    flat = np.ravel_multi_index(places, shape[: len(places)])
    left = np.arange(flat.size)
    while left.size:
        _, first = np.unique(flat.ravel()[left], return_index=True)
        turn = np.zeros(flat.size, bool)
        turn[left[first]] = True
        yield turn.reshape(flat.shape)
        left = np.delete(left, first)


@dataclass(frozen=True, kw_only=True, repr=False)
class Ordered(Operator):
    """What an order along `axis` chooses. x: any shape with the axis."""

    axis: int = -1

    def batch(self, *shapes):
        (rank, *rest) = (None if shape is None else len(shape) for shape in shapes)
        outputs = (0,) * (1 + len(self.stopped_outputs))
        return Batch((0, *(None for _ in rest)), outputs) if rank and self.axis % rank else None


@dataclass(frozen=True, kw_only=True, repr=False)
class TopK(Ordered):
    """The k largest elements, or the smallest, in order, and where they are. ONNX TopK-24.

    k: (1,) int64. Of equal elements any may come first. They are in order also with `sorted` 0,
    which leaves that open.
    """

    largest: int = 1
    sorted: int = 1
    since = 24
    stopped_outputs = (1,)

    def forward(self, x, k):
        first, axis = range(int(k[0])), self.axis
        if self.largest:  # backwards, and so once more: equal ones keep their order
            ordered = np.flip(np.sort(x, axis), axis)
            order = np.argsort(np.flip(x, axis), axis, kind="stable")
            order = x.shape[axis] - 1 - np.flip(order, axis)
        else:
            ordered, order = np.sort(x, axis), np.argsort(x, axis, kind="stable")
        return np.take(ordered, first, axis), np.take(order, first, axis)

    def backward(self, grads, inputs, outputs):
        (dy, _), (x, _), (_, indices) = grads, inputs, outputs
        dx = np.zeros_like(dy, shape=x.shape)
        np.put_along_axis(dx, indices, dy, self.axis)
        return dx, None


@dataclass(frozen=True, kw_only=True, repr=False)
class Index(Ordered):
    """Where an extremum is; of equal ones the first, or with `select_last_index` the last."""

    axis: int = 0
    keepdims: int = 1
    select_last_index: int = 0
    since = 13

    def chosen(self, x):
        """The index of the first, the dimension kept."""
        raise NotImplementedError(f"{self.name} says no `chosen(x)`")

    def forward(self, x):
        if self.select_last_index:
            index = x.shape[self.axis] - 1 - self.chosen(np.flip(x, self.axis))
        else:
            index = self.chosen(x)
        return index if self.keepdims else index.squeeze(self.axis)


@dataclass(frozen=True, kw_only=True, repr=False)
class ArgMax(Index):
    """The index of the largest element along an axis, int64. ONNX ArgMax-13."""

    def chosen(self, x):
        return np.argmax(x, self.axis, keepdims=True)


@dataclass(frozen=True, kw_only=True, repr=False)
class ArgMin(Index):
    """The index of the smallest element along an axis, int64. ONNX ArgMin-13."""

    def chosen(self, x):
        return np.argmin(x, self.axis, keepdims=True)


@dataclass(frozen=True, kw_only=True, repr=False)
class Hardmax(Ordered):
    """1 for the first of the largest elements along an axis, 0 for the others. ONNX Hardmax-13."""

    since = 13

    def forward(self, x):
        y = np.zeros_like(x)
        np.put_along_axis(y, np.argmax(x, self.axis, keepdims=True), np.ones(()), self.axis)
        return y


@dataclass(frozen=True, kw_only=True, repr=False)
class Compress(Operator):
    """The entries along an axis for which a condition holds. ONNX Compress-28.

    x: any shape, flattened first if there is no `axis`; condition: (m,) bool, no longer than the
    axis: what is beyond is left out.
    """

    axis: int | None = None
    since = 28

    def forward(self, x, condition):
        x = x.reshape(-1) if self.axis is None else x
        return np.take(x, np.flatnonzero(condition), self.axis or 0)

    def backward(self, grads, inputs, outputs):
        (dy,), (x, condition) = grads, inputs
        dx = np.zeros_like(dy, shape=(x.size,) if self.axis is None else x.shape)
        before = (slice(None),) * ((self.axis or 0) % dx.ndim)
        dx[(*before, np.flatnonzero(condition))] = dy
        return dx.reshape(x.shape), None


@dataclass(frozen=True, kw_only=True, repr=False)
class OneHot(Operator):
    """One number where an index says, another elsewhere along a new axis. ONNX OneHot-28.

    indices: any shape, integers, negative ones from the end; beyond `depth` there is none. depth:
    () or (1,) int64; values: (2,), the other number and the one; y: values' dtype.
    """

    axis: int = -1
    since = 28

    def forward(self, indices, depth, values):
        n, rank = int(np.ravel(depth)[0]), indices.ndim + 1
        along = [n if axis == self.axis % rank else 1 for axis in range(rank)]
        place = np.expand_dims(from_the_front(indices, n), self.axis)
        return np.where(place == np.arange(n).reshape(along), values[1], values[0])


@dataclass(frozen=True, kw_only=True, repr=False)
class TensorScatter(Operator):
    """A cache with some steps of each sample replaced, side by side. ONNX TensorScatter-24.

    cache: (n, ..., steps, ...), the steps along `axis`, which is not the first; update: the same
    with fewer; write_indices: (n,) int64, the first step that is replaced, 0 if absent. Behind
    the last step the first one follows, where `mode` is "circular".
    """

    axis: int = -2
    mode: str = "linear"
    since = 24

    def places(self, cache, update, first):
        """For each axis the index of each update."""
        places = list(np.indices(update.shape))
        if first is not None:
            places[self.axis] = places[self.axis] + first[places[0]]
        if self.mode == "circular":
            places[self.axis] = places[self.axis] % cache.shape[self.axis]
        return tuple(places)

    def forward(self, cache, update, write_indices=None):
        y = cache.copy()
        y[self.places(cache, update, write_indices)] = update
        return y

    def backward(self, grads, inputs, outputs):
        (dy,), (cache, update, *first) = grads, inputs
        places, dcache = self.places(cache, update, *first or (None,)), dy.copy()
        dcache[places] = 0.0
        return dcache, dy[places], *(None for _ in first)

    def batch(self, *shapes):
        return Batch(tuple(None if s is None else 0 for s in shapes), (0,))
