"""The Hypothesis profile `d5test`: loaded unless the user chose one.

No deadline (a framework's first call compiles), no database (a run depends on its command line
alone), no explain phase (it runs a failing case about a hundred times more).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, Phase, Verbosity, settings

if TYPE_CHECKING:
    import pytest

PROFILE = settings(
    database=None,
    deadline=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=tuple(HealthCheck),
    report_multiple_bugs=True,
    print_blob=False,
    verbosity=Verbosity.quiet,
)
"""What exploration runs under, whatever profile is loaded for other tests."""


def pytest_configure(config: pytest.Config) -> None:
    """Load the profile."""
    settings.register_profile("d5test", database=None, deadline=None, print_blob=False)
    if not config.getoption("--hypothesis-profile", default=None):
        settings.load_profile("d5test")
