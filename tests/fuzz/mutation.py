"""Small changes of what a reader reads: of bytes, and of the structure that they have.

A mutator takes content and a generator and returns content that is a little different, and mostly
still of its format: JSON stays JSON, a ZIP archive has its members, a model parses.
"""

import gzip
import io
import json
import pickle
import zipfile
import zlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

Mutator = Callable[[bytes, Random], bytes]
NUMBERS: tuple[Any, ...] = (
    0, -0.0, 1, -1, 5e-324, 1e-310, 1e-300, 1e-12, 1e-9, 0.5, 1e7, 1e8, 1e100, 1e101, 1.7e308,
    2**31 - 1, 2**32, 2**53 + 1, 2**63, 2**64, -(2**63), 10**400, float("nan"), float("inf"),
    float("-inf"), 255, 256, 65535, 4096,
)  # fmt: skip
LEAVES: tuple[Any, ...] = (
    *NUMBERS, None, True, False, "", "x", "nan", "time", "ä\ud800", "\0", "../x", "/dev/zero",
    "a" * 300, [], {}, [[]], [{}], {"x": 1}, [1, 2, 3], {"schema": 1},
)  # fmt: skip
BYTES = (
    b"", b"\0", b"\xff", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"9" * 40,
    b"[" * 60, b"{", b'"', b"]", b"nan", b"-1", b"1e999", b"\x80\x04", b"PK\x03\x04",
)  # fmt: skip


def by_bytes(content: bytes, draw: Random) -> bytes:
    """Some bytes flipped, cut out, put in or repeated."""
    changed = bytearray(content)
    for _ in range(1 + int(draw.expovariate(1))):
        at = draw.randrange(len(changed) + 1)
        to = min(at + draw.choice((0, 1, 1, 2, 4, 8, 64, 4096)), len(changed))
        kind = draw.randrange(5)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del changed[at:to]
        elif kind == 2:
            changed[at:to] = draw.choice(BYTES)
        elif kind == 3:
            changed[at:at] = changed[at:to] * draw.choice((1, 2, 50))
        else:
            changed[at:to] = draw.randbytes(to - at)
    return bytes(changed)


def places(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Every place in a tree: the container, and the key or position in it."""
    held = range(len(value)) if isinstance(value, list) else value
    for key in list(held) if isinstance(value, dict | list) else ():
        yield value, key
        if depth < 40:
            yield from places(value[key], depth + 1)


def tree(value: Any, draw: Random) -> Any:
    """A tree of JSON, or of TOML, with a leaf, a key or a branch changed."""
    changed = deepcopy(value)
    for _ in range(1 + int(draw.expovariate(1.5))):
        every = list(places(changed))
        if not every:
            return draw.choice(LEAVES)
        holder, key = draw.choice(every)
        kind = draw.randrange(6)
        if kind <= 1:
            holder[key] = deepcopy(draw.choice(LEAVES))
        elif kind == 2 and isinstance(holder[key], int | float):
            holder[key] = draw.choice(NUMBERS)
        elif kind == 3:
            del holder[key]
        elif kind == 4:
            other, place = draw.choice(every)
            if place in other if isinstance(other, dict) else place < len(other):
                holder[key] = deepcopy(other[place])
        elif isinstance(holder, dict):
            holder[draw.choice(("x", "data", "", str(key) + "s"))] = holder.pop(key)
        else:
            holder.insert(key, deepcopy(holder[key]))
    return changed


def by_json(content: bytes, draw: Random) -> bytes:
    """JSON that is a little different."""
    try:
        return json.dumps(tree(json.loads(content), draw)).encode()
    except (ValueError, RecursionError):
        return by_bytes(content, draw)


def by_gzip(inner: Mutator) -> Mutator:
    """What is packed is changed, or the pack."""

    def mutate(content: bytes, draw: Random) -> bytes:
        try:
            return gzip.compress(inner(gzip.decompress(content), draw), 1, mtime=0)
        except (OSError, EOFError, ValueError, zlib.error):
            return by_bytes(content, draw)

    return mutate


def by_members(inner: Mutator) -> Mutator:
    """A member of a ZIP archive is changed, left out, doubled or compressed."""

    def mutate(content: bytes, draw: Random) -> bytes:
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                members = {name: archive.read(name) for name in archive.namelist()}
        except Exception:  # noqa: BLE001 - it is no archive: its bytes are changed
            return by_bytes(content, draw)
        if not members:
            return by_bytes(content, draw)
        name = draw.choice(sorted(members))
        kind = draw.randrange(4)
        if kind == 0:
            del members[name]
        elif kind == 1:
            members[f"{name}x"] = members[name]
        else:
            members[name] = inner(members[name], draw)
        made = io.BytesIO()
        how = zipfile.ZIP_DEFLATED if draw.random() < 0.1 else zipfile.ZIP_STORED
        with zipfile.ZipFile(made, "w", how) as archive:
            for member, held in members.items():
                archive.writestr(member, held)
        return made.getvalue()

    return mutate


def by_message(make: Callable[[], Any]) -> Mutator:
    """A field of a protocol buffer is changed, at any depth."""

    def mutate(content: bytes, draw: Random) -> bytes:
        message = make()
        try:
            message.ParseFromString(content)
        except Exception:  # noqa: BLE001 - it is no message: its bytes are changed
            return by_bytes(content, draw)
        for _ in range(1 + int(draw.expovariate(1.5))):
            _field(message, draw)
        return bytes(message.SerializePartialToString())

    return mutate


def _field(message: Any, draw: Random) -> None:
    """One field of a message, or of one within it."""
    while True:
        fields = message.ListFields()
        if not fields or draw.random() < 0.1:
            fields = [(field, None) for field in message.DESCRIPTOR.fields]
        field, value = draw.choice(fields)
        if value is None or field.message_type is None:
            break
        inner = list(value) if hasattr(value, "add") else [value]
        if not inner or draw.random() < 0.15:
            break
        message = draw.choice(inner)
    kind = draw.randrange(3)
    if kind == 0 or field.message_type is not None:
        message.ClearField(field.name)
        return
    drawn = draw.choice((0, 1, -1, 7, 2**31 - 1, -(2**31), 2**40, "", "x", "ä", b"\0" * 9, 0.5))
    repeated = hasattr(getattr(message, field.name), "append")
    try:
        if not repeated:
            setattr(message, field.name, drawn)
        elif kind == 1:
            getattr(message, field.name).append(drawn)
        else:
            getattr(message, field.name)[0] = drawn
    except (TypeError, ValueError, IndexError):
        message.ClearField(field.name)


def by_pickle(content: bytes, draw: Random) -> bytes:
    """A message of builtins that is a little different, or its bytes."""
    if draw.random() < 0.5:
        return by_bytes(content, draw)
    value = draw.choice(LEAVES)
    return pickle.dumps(draw.choice(((value,), ("ok", value), ("raised", value), value)), 4)


def any_of(*mutators: Mutator) -> Mutator:
    """One of them each time."""
    return lambda content, draw: draw.choice(mutators)(content, draw)
