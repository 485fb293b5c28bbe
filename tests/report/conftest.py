"""`made`: the page of files, by the command; `chromium`: a real browser, or a skip."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from d5test.cli import main

ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage"]
"""Containers run it as root, and have little shared memory."""
NAMES = ("chromium", "chromium-browser", "google-chrome")


class Made(NamedTuple):
    """Exit status, outputs, and the page."""

    status: int
    out: str
    err: str
    path: Path

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")


@pytest.fixture
def made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Made]:
    """Call it with FILE or OLD and NEW, and options."""

    def run(*arguments: object) -> Made:
        path = tmp_path / "report.html"
        capsys.readouterr()
        status = main(["report", "-o", str(path), *map(str, arguments)])
        return Made(status, *capsys.readouterr(), path)

    return run


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"there is no browser: none of {', '.join(NAMES)}")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()
