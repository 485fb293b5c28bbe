"""The settings under which cases are drawn, whatever profile is loaded for other tests.

No deadline (a framework's first call compiles), no database (a run depends on its command line
alone), no explain phase (it runs a failing case about a hundred times more).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.internal.conjecture.engine import ConjectureRunner

MUTATOR = "generate_mutations_from"

PROFILE = settings(
    database=None,
    deadline=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=tuple(HealthCheck),
    report_multiple_bugs=True,
    print_blob=False,
    verbosity=Verbosity.quiet,
)


@contextmanager
def independent_draws() -> Iterator[None]:
    """Without Hypothesis' mutator, for which it has no setting.

    After each new example it runs up to five copies in which one part was copied over another:
    sizes become equal that were drawn to differ, and of 300 cases of MaxPool only 64 had a seed
    of their own. Where a Hypothesis has no such method there is nothing to leave out.
    """
    if hasattr(ConjectureRunner, MUTATOR):
        with patch.object(ConjectureRunner, MUTATOR, lambda runner, data: None):
            yield
    else:
        yield
