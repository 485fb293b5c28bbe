"""Hypothesis on ranks: all draw the same examples, and stop at the first that fails at any rank.

Requirements: nobody waits for a rank that has gone on to another example; what fails is shown by
the rank at which it failed, as Hypothesis shows it. Nothing shrinks: an example that failed has
spoilt the communicator, and cannot be run again. Where ranks need not be processes, virtual ranks
can shrink.
"""

from __future__ import annotations

import functools
import hashlib
import re
import signal
from collections.abc import Callable, Generator
from typing import Any

import pytest

from d5test.distributed.guarded import Left
from d5test.plugin.ranks.together import Together

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
SETTINGS = "_hypothesis_internal_use_settings"


class Lockstep:
    """The plugin of each rank."""

    def __init__(self, together: Together) -> None:
        self.together = together

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Run the examples of a test of Hypothesis in step."""
        test = getattr(item, "obj", None)
        handle = getattr(test, "hypothesis", None)
        if handle is None:
            return (yield)
        function = getattr(test, "__func__", test)
        own, settings = handle.inner_test, getattr(function, SETTINGS)
        handle.inner_test = self._in_step(own)
        setattr(function, SETTINGS, _same_everywhere(settings))
        try:
            return (yield)
        finally:
            handle.inner_test = own
            setattr(function, SETTINGS, settings)

    def _in_step(self, test: Callable[..., Any]) -> Callable[..., Any]:
        failed: list[BaseException] = []

        @functools.wraps(test)
        def together(*given: Any, **drawn: Any) -> Any:
            __tracebackhide__ = True
            if failed:  # Hypothesis runs a failing example again, to show it
                raise failed[0]
            self._agree_on(given, drawn)
            try:
                error = _raised(test, given, drawn)
                self._agree_after(error)
            except BaseException as error:
                if not _rejects(error):
                    failed.append(error)
                raise

        return together

    def _agree_on(self, given: Any, drawn: Any) -> None:
        text = ADDRESS.sub("", repr((given, sorted(drawn.items()))))
        digest = hashlib.sha256(text.encode()).hexdigest()
        said = self._told({"digest": digest})
        if len({remark["digest"] for remark in said}) > 1:
            raise AssertionError(
                "the ranks drew different examples: does a strategy know its rank?"
            )

    def _agree_after(self, error: BaseException | None) -> None:
        """Raise this rank's error, or, if it has none, for that of another."""
        __tracebackhide__ = True
        left = error is not None and not isinstance(error, Left) and not _rejects(error)
        if left:
            self.together.ranks.notices.send()
        remark = None if error is None else {"left": left, "rejects": _rejects(error)}
        said = self._told(remark) or []
        gone = [rank for rank, other in enumerate(said) if other and other["left"]]
        self.together.ranks.notices.clear(gone)
        if error is not None and not (gone and _rejects(error)):
            raise error
        if gone:
            raise Left(f"had passed the example with which rank {gone[0]} left")
        if said:
            import hypothesis

            hypothesis.reject()

    def _told(self, remark: Any) -> Any:
        """Tell the others, whatever the deadline: half told, they could not be told any more."""
        own = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        try:
            return self.together.tell("example", remark)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, own)


def _raised(test: Callable[..., Any], given: Any, drawn: Any) -> BaseException | None:
    __tracebackhide__ = True
    try:
        test(*given, **drawn)
    except BaseException as error:  # noqa: BLE001 - it is raised again, once all ranks know
        return error
    return None


def _rejects(error: BaseException) -> bool:
    from hypothesis.errors import UnsatisfiedAssumption

    return isinstance(error, UnsatisfiedAssumption)


def _same_everywhere(settings: Any) -> Any:
    """Settings under which the examples follow from the test alone."""
    from hypothesis import HealthCheck, Phase
    from hypothesis import settings as make

    return make(
        settings,
        derandomize=True,
        database=None,
        deadline=None,
        phases=tuple(p for p in settings.phases if p in (Phase.explicit, Phase.generate)),
        suppress_health_check=tuple(HealthCheck),
    )
