"""Whether a call leaves its inputs and upstream gradients as they are."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from d5test.checks.inquiry import Inquiry
from d5test.client.messages import Feed, Result, same


def require_kept(
    inquiry: Inquiry,
    feeds: Sequence[Feed],
    result: Result,
    plain: Feed | None = None,
    at: str = "",
) -> None:
    """Raise the fault that the last of some calls overwrites what it is called with.

    plain  the same call, all contiguous, if that was not: one that overwrites as well is left to
           the check `untouched`
    at     where it happens, as in ` in a call with transposed ones`
    """
    for what, before, after in _read(feeds[-1], result):
        if same(before, after):
            continue
        if plain is not None:
            (other,) = inquiry.ask(plain)
            if not all(same(was, now) for _, was, now in _read(plain, other)):
                wrong = f"{inquiry.case.op.name} overwrites its inputs in a plain call"
                raise inquiry.left_to("untouched", wrong)
        raise inquiry.fault(
            "mutated", f"an {what} is overwritten{at}", tuple(feeds), "untouched",
            which=f"{what} {_change(before, after)}",
        )  # fmt: skip


def _read(feed: Feed, result: Result) -> tuple[tuple[str, Any, Any], ...]:
    """What is called with, before the call and after it."""
    return (
        ("input", feed.inputs, result.inputs_after),
        ("upstream gradient", feed.grads or (), result.grads_after or ()),
    )


def _change(before: Any, after: Any) -> str:
    """The position of the first array that changed, and its first element whose bits did."""
    i, was, now = next(
        (i, a, b) for i, (a, b) in enumerate(zip(before, after, strict=True)) if not same([a], [b])
    )
    bits = f"u{was.dtype.itemsize}"
    at = tuple(np.argwhere(was.view(bits) != now.view(bits))[0].tolist())
    return f"{i}, element {list(at)}: {was[at]} before the call, {now[at]} after it"
