"""The same examples on every machine, and runs within that are their own."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from d5test.exploration.draws import reproducible_draws

# a test may write a module twice within a second, by which caches of modules are told apart: what
# is compiled here, or by what is started here, is not kept; what was kept before is read
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
settings.register_profile(
    "tests", database=None, deadline=None, derandomize=True, print_blob=False
)
settings.load_profile("tests")


@pytest.fixture(autouse=True, scope="session")
def the_same_examples() -> Iterator[None]:
    """Whatever tests ran before in this process, and loaded."""
    with reproducible_draws():
        yield


@pytest.fixture(autouse=True, scope="session")
def as_typed_by_a_user() -> Iterator[None]:
    """The runs within are their own: neither CI's longer summary nor xdist's worker is theirs."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CI", "BUILD_NUMBER", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_TESTRUNUID"):
            patch.delenv(name, raising=False)
        yield
