"""Process groups of gloo that have ended are let go of, wherever the work of them is."""

from collections import deque
from itertools import count

import pytest

from d5test.distributed import gloo


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> deque[tuple[float, object]]:
    """The groups that have ended, none of them so far."""
    groups: deque[tuple[float, object]] = deque()
    monkeypatch.setattr(gloo, "ENDED", groups)
    monkeypatch.setattr(gloo, "BEGUN", count(1))
    return groups


def test_what_else_has_a_group_is_collected(
    ended: deque[tuple[float, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where tests take so long that no group is kept here: its threads would stay."""
    collected = []
    monkeypatch.setattr(gloo.gc, "collect", lambda: collected.append(len(ended)))
    for _ in range(3 * gloo.KEPT):
        ended.append((float("-inf"), object()))
        gloo._let_go()
        assert not ended
    assert len(collected) == 3


def test_the_latest_groups_are_kept_while_their_work_may_last(
    ended: deque[tuple[float, object]],
) -> None:
    for number in range(5 * gloo.KEPT):
        ended.append((float("inf"), number))
        gloo._let_go()
        assert len(ended) < 2 * gloo.KEPT
    assert [number for _, number in ended][-1] == 5 * gloo.KEPT - 1
    assert len(ended) == gloo.KEPT
