"""Fuzz every reader for so long: python -m tests.fuzz --seconds=3600 [--reader=NAME[,NAME]]

Each target has a process of its own and its share of the time. atheris guides it by what of
d5test's code is reached, and changes content by `d5test`'s knowledge of its structure. What falls
is kept in `.fuzz/`: `python -m tests.fuzz --reader=NAME FILE` tries it again. Exit status 1: a
target fell.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from d5test.arguments import listed

FOLDER = Path(".fuzz")
READING = [
    "d5test.client.registry", "d5test.compare", "d5test.files", "d5test.gate.accepted",
    "d5test.networks.model", "d5test.networks.network", "d5test.networks.nodes",
    "d5test.problems.corpus", "d5test.report", "d5test.reproducer.mark",
    "d5test.training.trainer", "d5test.training.datasets", "d5test.worker.wire",
]  # fmt: skip
"""Where it counts what was reached: to count everywhere takes minutes to begin."""
MOST = 2048
"""MiB of memory that a target may take; its seeds and what it imports are 300."""


def main() -> int:
    """All targets, one after the other; or one, which is tried again or fuzzed in this process."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=float, default=3600.0, help="of all of them together")
    parser.add_argument("--reader", action="append", default=[], metavar="NAME[,NAME]")
    parser.add_argument("--here", action="store_true", help="fuzz the one reader in this process")
    parser.add_argument("files", nargs="*", type=Path, help="content that is tried again")
    given = parser.parse_args()
    names = listed(given.reader)
    if given.here:
        fuzz(names[0], given.seconds)
    from tests.fuzz.readers import READERS, execute

    if given.files:
        for path in given.files:
            with TemporaryDirectory() as folder:
                execute(READERS[names[0]], path.read_bytes(), Path(folder))
        return 0
    fallen = []
    for name in names or READERS:
        share = given.seconds / len(names or READERS)
        command = [sys.executable, "-m", "tests.fuzz", "--here", f"--reader={name}"]
        ran = subprocess.run([*command, f"--seconds={share}"], check=False)
        if ran.returncode:
            fallen.append(name)
    print(f"fell: {', '.join(fallen)}" if fallen else "nothing fell")
    return int(bool(fallen))


def fuzz(name: str, seconds: float) -> None:
    """Fuzz a target in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(include=READING):
        from tests.fuzz.readers import READERS, execute, seeds_of
    reader, folder = READERS[name], TemporaryDirectory()
    corpus, kept = FOLDER / name / "corpus", FOLDER / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(seeds_of(reader)):
        (corpus / f"seed-{number}").write_bytes(content)

    def one(content: bytes) -> None:
        execute(reader, content, Path(folder.name))

    def mutate(content: bytes, most: int, seed: int) -> bytes:
        made = reader.mutate(content, Random(seed))
        return made if len(made) <= most else made[:most]

    options = [f"-max_total_time={max(int(seconds), 1)}", f"-artifact_prefix={kept}/",
               f"-rss_limit_mb={MOST}", "-max_len=1048576", "-len_control=0", "-timeout=60",
               "-print_final_stats=1", "-verbosity=1"]  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(corpus)], one, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
