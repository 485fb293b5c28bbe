"""The garbage collector passes over what stands before the first test, and lives until the end.

It visits everything each time that it collects all: modules of NumPy, Hypothesis and d5test are
most of that.
"""

import gc

import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    """Called with the tests to run."""
    gc.freeze()
    session.config.add_cleanup(gc.unfreeze)
