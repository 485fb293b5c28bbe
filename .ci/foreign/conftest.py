"""A project with options that d5test's suites have, too."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--backend", default="none")
    parser.addoption("--device", default="none")


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--backend"))
