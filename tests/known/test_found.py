"""docs/found.md is what the rows say, and its reproducers print what it says they do."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from d5test import processor
from d5test.checks import CHECKS
from d5test.client.client import WorkerClient
from d5test.client.registry import installed
from d5test.known.failure import KnownFailure
from d5test.known.finding import Finding
from d5test.known.reading import shipped_files
from d5test.known.writing import page
from tests.nightly import at_night

FILES = shipped_files(CHECKS)
FINDINGS = [
    pytest.param(files.preamble, finding, id=f"{finding.package}-{finding.about}-{number}")
    for files in FILES.values()
    for number, finding in enumerate(files.findings)
]
FOUND = Path(__file__).parents[2] / "docs" / "found.md"
ALL = """
import contextlib, io, json, sys
preamble, lines = json.load(sys.stdin)
names, told = {}, []
exec(preamble, names)
for text in lines:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            exec(text, dict(names))
        except Exception as error:
            print(error)
    told.append(out.getvalue())
json.dump(told, sys.stdout)
"""


def test_the_page_is_up_to_date() -> None:
    assert FOUND.read_text() == page(FILES), "d5test known --page > docs/found.md"


@pytest.mark.parametrize(
    "framework", [at_night("torch"), at_night("tensorflow"), at_night("jax"), "onnxruntime"]
)
def test_reproducers_print_what_the_page_says(framework: str) -> None:
    if framework not in installed():
        pytest.skip(f"{framework} is not installed")
    with WorkerClient(framework) as client:
        about = client.about
    preamble, rows, _ = FILES[framework]
    every_mode = (replace(row, backends=()) for row in rows if row.prints)
    meant = [row for row in every_mode if row.speaks_of(about)]
    crash = [row for row in meant if "the process dies" in row.reproducer]
    told = printed(preamble, [row for row in meant if row not in crash])
    assert told
    for row, text in told:
        assert flat(row.prints) in flat(text), row.reason
    for row in crash:
        ended = subprocess.run(
            [sys.executable, "-c", f"{preamble}\n{row.reproducer}"], capture_output=True
        )
        assert signal.strsignal(-ended.returncode) in row.prints, row.reason


@pytest.mark.nightly
@pytest.mark.parametrize(("preamble", "finding"), FINDINGS)
def test_a_fault_without_a_case_is_still_there(preamble: str, finding: Finding) -> None:
    """Once it is not, nothing has to be avoided. Whether memory of others is hit is chance."""
    if not finding.installed:
        pytest.skip(f"{finding.package} {finding.versions} is not installed")
    if finding.extension and f"{finding.extension.lower()}f" not in processor.flags():
        pytest.skip(f"this processor has no {finding.extension}")
    preload = finding.environment.get("LD_PRELOAD")
    if preload and not Path("/lib/x86_64-linux-gnu", preload).exists():
        pytest.skip(f"{preload} is not here")
    outputs = []
    for _ in range(8 if "the process dies" in finding.reproducer else 1):
        ended = subprocess.run(
            [sys.executable, "-c", f"{preamble}\n{finding.reproducer}"],
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"} | finding.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        outputs.append(f"{ended.stdout}{ended.stderr}{describe(ended.returncode)}")
        if any(flat(words) in flat(outputs[-1]) for words in finding.prints.split(" or ")):
            return
    pytest.fail(f"{finding.about}: expected {finding.prints}, and not\n" + "\n".join(outputs))


def describe(status: int) -> str:
    """The signal of which a process died; empty if it ended by itself."""
    return str(signal.strsignal(-status)) if status < 0 else ""


def printed(preamble: str, rows: list[KnownFailure]) -> list[tuple[KnownFailure, str]]:
    """What the reproducers print, or raise, all in one process."""
    environment = {**os.environ, "MALLOC_PERTURB_": "90", "TF_CPP_MIN_LOG_LEVEL": "3"}
    ended = subprocess.run(
        [sys.executable, "-c", ALL],
        input=json.dumps([preamble, [row.reproducer for row in rows]]),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return list(zip(rows, json.loads(ended.stdout.splitlines()[-1]), strict=True))


def flat(text: str) -> str:
    """Without line breaks and runs of blanks."""
    return " ".join(text.split())
