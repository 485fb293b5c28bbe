"""A run of a reproducer, as its user runs it.

Requirements: a process of its own, in which nothing is imported yet, under the interpreter that
showed the fault or any other. None of them needs to have d5test: a file that imports the backend
finds this d5test, as a worker does, and nothing that is installed beside it.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from d5test.client import registry
from d5test.client.process import Launch
from d5test.worker.worker import end_group

GONE, THERE = "gone", "still there"
VERDICTS = {0: GONE, 1: THERE}
"""What a reproducer says, by the status that it ends with: one without the other is no verdict."""
PACKAGE = Path(__file__).resolve().parents[1]


class NoVerdict(Exception):
    """A file that says nothing of its fault; the text is the file and the reason."""


def tried(path: Path, python: str, seconds: float) -> tuple[str, str]:
    """The verdict of a reproducer under an interpreter, and the line that it says.

    One that dies by a signal or gives no answer shows its fault. Raises `NoVerdict`.
    """
    try:
        with surroundings(python) as variables:
            process = subprocess.Popen(
                [python, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                errors="replace", stdin=subprocess.DEVNULL, env=variables, start_new_session=True,
            )  # fmt: skip
            with process:
                try:
                    out, err = process.communicate(timeout=seconds)
                except BaseException:  # it starts one of its own, which may hang
                    end_group(process.pid)
                    raise
    except subprocess.TimeoutExpired:
        return THERE, f"no answer within {seconds:g} s"
    except OSError as error:
        raise NoVerdict(
            f"{path} cannot be tried: its interpreter {python} cannot be started "
            f"({error.strerror}); give another by --python"
        ) from None
    if process.returncode < 0:
        return THERE, f"died by signal {-process.returncode}"
    said = (out.strip() or err.strip()).splitlines()
    verdict = VERDICTS.get(process.returncode)
    for line in said:
        if verdict is not None and line.startswith(verdict):
            return verdict, line
    last = said[-1].removeprefix("cannot be tried: ") if said else "it says nothing"
    raise NoVerdict(f"{path} cannot be tried under {python}: {last} (status {process.returncode})")


@contextmanager
def surroundings(python: str) -> Iterator[dict[str, str]]:
    """The environment of a run under an interpreter: the user's, with d5test."""
    with TemporaryDirectory(prefix="d5test-") as folder:
        package = Path(folder, "d5test")
        package.mkdir()
        package.joinpath("__init__.py").write_text(f"__path__ = [{str(PACKAGE)!r}]\n", "utf-8")
        variables = Launch("", "", python).variables()
        paths = (folder, variables.get("PYTHONPATH", ""))
        yield {**variables, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def folder_of(modules: Iterable[str], about: Any) -> Path | None:
    """Where a worker finds some of these modules beside the backend's own file, if it does."""
    folder = folder_of_backend(about)
    place = registry.resolve(about.name).target.rpartition(":")[0]
    own = Path(place).stem if place.endswith(".py") else ""
    beside = folder and any(lies_in(folder, name) for name in modules if name != own)
    return folder if beside else None


def folder_of_backend(about: Any) -> Path | None:
    """Where the file of a stranger's backend lies, which a worker searches; of ours: `None`."""
    place = registry.resolve(about.name).target.rpartition(":")[0]
    if place.endswith(".py"):
        return Path(place).parent
    first = place.partition(".")[0]
    return Path.cwd() if first != "d5test" and lies_in(Path.cwd(), first) else None


def searched(folder: Path | None) -> str:
    """The statement by which a reproducer looks in a folder, if there is one."""
    return f"sys.path.append({str(folder)!r})" if folder else ""


def lies_in(folder: Path, module: str) -> bool:
    """Whether a folder has a module or package of this name."""
    return (folder / f"{module}.py").is_file() or (folder / module / "__init__.py").is_file()
