"""Parts of a sparse allreduce that are wrong on purpose, each in one way, by what they replace."""

from typing import Any

import numpy as np

from d5test.reference.collectives import Recv, Schedule, Send
from d5test.reference.compressors import INDEX, packed
from d5test.reference.sparse_collectives import (
    DENSE,
    exchange,
    part_of,
    room_for,
    split_allgather,
    stream,
)


def never_dense(x: Any) -> tuple[Any, Any]:
    """Pairs are sent where all items are shorter."""
    at = np.flatnonzero(x)
    return np.array([len(at)]), packed(at.astype(INDEX), x[at])


def always_dense(x: Any) -> tuple[Any, Any]:
    """All items are sent."""
    return np.array([DENSE]), packed(x)


def in_other_order(x: Any) -> tuple[Any, Any]:
    """Indices go up, values go down."""
    header, body = stream(x)
    if header[0] == DENSE:
        return header, body
    at = np.flatnonzero(x)
    return header, packed(at.astype(INDEX), x[at][::-1])


def small_items_lost(x: Any) -> tuple[Any, Any]:
    """What is below a quarter of the largest item is taken for zero."""
    return stream(np.where(np.abs(x) < np.max(np.abs(x), initial=0) / 4, np.zeros_like(x), x))


def one_further(header: Any, body: Any, like: Any) -> Any:
    """Indices count from 1."""
    part = part_of(header, body, like)
    return part if header[0] == DENSE else np.roll(part, 1)


def indices_alone(header: Any, body: Any, like: Any) -> Any:
    """Each item that is there is a one."""
    part = part_of(header, body, like)
    return part if header[0] == DENSE else (part != 0).astype(like.dtype)


def sent_first(to: int, x: Any, source: int, like: Any) -> Any:
    """Both send before they receive."""
    (head, body), header = stream(x), np.zeros(1, np.int64)
    yield Send(to, head)
    yield Recv(source, header)
    room = room_for(header, like)
    yield Send(to, body), Recv(source, room)
    return part_of(header, room, like)


def without_header(to: int, x: Any, source: int, like: Any) -> Any:
    """The room is what this rank has itself."""
    _, body = stream(x)
    room = np.zeros_like(body)
    yield Send(to, body), Recv(source, room)
    return part_of(stream(x)[0], room, like)


def overwriting(rank: int, size: int, x: Any) -> Schedule:
    """A recursive doubling in which an item of the partner replaces one's own."""
    bit = 1
    while bit < size and rank < 1 << size.bit_length() - 1:
        if bit << 1 > 1 << size.bit_length() - 1:
            break
        part = yield from exchange(rank ^ bit, x, rank ^ bit, x)
        x[...] = np.where(part != 0, part, x)
        bit <<= 1


def counted_twice(rank: int, size: int, x: Any) -> Schedule:
    """The chunk of one's own is there already when the others' are added to it."""
    own = np.array_split(x, size)[rank].copy()
    yield from split_allgather(rank, size, x)
    chunk = np.array_split(x, size)[rank]
    np.add(chunk, own, out=chunk)
