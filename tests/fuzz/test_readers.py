"""A few executions of each target, always the same: `make nightly` has an hour of them."""

import base64
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.readers import READERS, execute, mutations, seeds_of

COUNTS = {"benchmarks": 60, "idx": 100, "page": 60, "verdict": 150, "name": 60}
"""Executions of the slow ones; each of the others has a thousand."""


@pytest.mark.parametrize("name", READERS)
def test_what_cannot_be_read_is_one_line(name: str, tmp_path: Path) -> None:
    for content in mutations(READERS[name], seed=20, count=COUNTS.get(name, 1000)):
        execute(READERS[name], content, tmp_path)


FALLEN = {
    "name": b"~no-such-user/x.py",
    "idx": b"\0\0\x08\xff" + b"\xff" * 13_000,
    "model": base64.b64decode(
        "OloKKhIDdHdvIghDb25zdGFudCoZCgt2YWx1ZV9mbG9hdBUAAABAoAEBqgEBeAoFCgFoEgAKFAoBchIBeSIHU29m"
        "dG1heCoDoAECUO/BgWgaAmZjIgZNYXRNdWw="
    ),
}
"""What targets fell over once."""


@pytest.mark.parametrize("name", FALLEN)
def test_what_fell_once_is_one_line(name: str, tmp_path: Path) -> None:
    execute(READERS[name], FALLEN[name], tmp_path)


@pytest.mark.parametrize("name", READERS)
def test_a_target_reads_its_seeds(name: str, tmp_path: Path) -> None:
    """Otherwise it would try its first line alone. A name is refused where no such file is."""
    reader = READERS[name]
    seeds = seeds_of(reader)
    assert seeds
    for content in seeds[:1] if name == "name" else seeds:
        reader.read(content, tmp_path)


@pytest.mark.parametrize("name", READERS)
def test_a_target_is_changed_into_both(name: str, tmp_path: Path) -> None:
    """Some of what is made of the seeds is refused, and some is read: neither alone tells much."""
    reader = READERS[name]
    draw, seeds = Random(3), seeds_of(reader)
    answers = set()
    for _ in range(400):
        content = reader.mutate(draw.choice(seeds), draw)
        try:
            reader.read(content, tmp_path)
            answers.add("read")
        except reader.refuses:
            answers.add("refused")
        if len(answers) == 2:
            break
    assert answers == {"read", "refused"}
