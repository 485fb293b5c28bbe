"""Breakpoints tell which functions are entered, and leave no trace in what is computed."""

import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5test.backends.base import Unsupported
from d5test.client.client import WorkerClient
from d5test.client.messages import Crashed, Feed, Raised
from d5test.kernels.probe import NoMeans, Probe, setter
from d5test.kernels.symbols import readable
from d5test.reference.operators import Relu
from d5test.worker.functions import Library, NotReadable
from tests.kernels.conftest import Act

X = np.arange(-3, 4, dtype=np.float32)
MANY = np.linspace(-1, 1, 2000, dtype=np.float32)
Start = Callable[..., WorkerClient]


def do(client: WorkerClient, deed: str) -> Any:
    (result,) = client.run(Act(deed=deed), [Feed((X,))])
    return result.outputs[0].tolist()


def names(probe: Probe) -> set[str]:
    """What was entered, by name."""
    return {readable(function) for function in probe.named(probe.entered())}


def test_what_is_entered_is_named_once(start: Start) -> None:
    client = start()
    probe = Probe(client)
    counts = probe.arm()
    assert [Path(path).suffix for path in counts] == [".so"]
    assert 107 <= sum(counts.values()) <= 130  # the steps, and what the compiler adds
    (result,) = client.run(Relu(), [Feed((X,))])
    assert result.outputs[0].tolist() == [0, 0, 0, 0, 1, 2, 3]
    assert names(probe) == {"relu", "few"}
    client.run(Relu(), [Feed((X,))])
    assert names(probe) == set()
    (result,) = client.run(Relu(), [Feed((MANY,), (MANY,))])
    assert np.array_equal(result.outputs[0], np.maximum(MANY, 0))
    assert np.array_equal(result.gradients[0], np.maximum(MANY, 0))  # type: ignore[index]
    assert names(probe) == {"many", "relu_gradient", "gradient"}


def test_what_is_watched_again_is_told_again(start: Start) -> None:
    client = start()
    probe = Probe(client)
    probe.arm()
    client.run(Relu(), [Feed((X,))])
    first = probe.entered()
    (few,) = (p for p, f in zip(first, probe.named(first), strict=True) if readable(f) == "few")
    probe.forget([few])
    client.run(Relu(), [Feed((X,))])
    assert probe.entered() == [few]
    probe.arm()
    client.run(Relu(), [Feed((X,))])
    assert sorted(probe.entered()) == sorted(first)


def test_a_library_without_names_is_known_by_addresses(start: Start) -> None:
    entered = []
    for library in ("named", "stripped"):
        client = start(library=library)
        probe = Probe(client)
        probe.arm()
        client.run(Relu(), [Feed((X,))])
        entered.append(probe.named(probe.entered()))
    named, stripped = entered
    addresses = {readable(f): f.address for f in named}
    assert sorted(f.address for f in stripped) == sorted(addresses.values())
    (few,) = (f for f in stripped if f.address == addresses["few"])
    assert few.name == ""
    assert readable(few) == f"{Path(few.library).name}+{few.address:#x}"


def test_threads_may_meet_at_one_breakpoint(start: Start) -> None:
    client = start()
    expected = do(client, "together")
    probe = Probe(client)
    for _ in range(20):
        probe.arm()
        assert do(client, "together") == expected
        steps = [name for name in names(probe) if name.startswith("step<")]
        assert len(steps) == 101


@pytest.mark.parametrize(("deed", "how"), [("crash", "SIGSEGV"), ("foreign", "SIGTRAP")])
def test_a_crash_is_told_and_what_follows_is_watched(start: Start, deed: str, how: str) -> None:
    """A trap that is not ours is no breakpoint's: it kills, as it does without them."""
    client = start(timeout=10)
    probe = Probe(client)
    probe.arm()
    with pytest.raises(Crashed) as caught:
        do(client, deed)
    assert caught.value.how == how
    assert probe.entered() == []
    client.run(Relu(), [Feed((X,))])
    assert names(probe) == {"relu", "few"}


def test_an_exception_ends_no_watch(start: Start) -> None:
    client = start()
    probe = Probe(client)
    probe.arm()
    with pytest.raises(Raised, match="on purpose"):
        do(client, "raise")
    assert names(probe) == {"relu", "few"}


def test_nothing_to_watch_is_said(start: Start) -> None:
    with pytest.raises(Unsupported, match="no native library of numpy is loaded"):
        Probe(start("Elsewhere")).arm()


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "is empty"), (b"x" * 200, "is not of an x86-64"), (None, "is damaged")],
)
def test_a_file_that_is_no_library_is_one_line(
    content: bytes | None, why: str, libraries: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "odd.so"
    path.write_bytes(libraries["named"].read_bytes()[:500] if content is None else content)
    with pytest.raises(NotReadable, match=why):
        Library(str(path))


def test_entries_and_names_are_those_of_the_file(libraries: dict[str, Path]) -> None:
    library = Library(str(libraries["named"]))
    entries = library.entries()
    assert np.all(np.diff(entries.astype(np.int64)) > 0)
    names = library.names(entries)
    assert {"relu", "never", "together", "foreign"} <= set(names)
    stripped = Library(str(libraries["stripped"]))
    named = [a for a, name in zip(entries, names, strict=True) if name.startswith("_Z4step")]
    assert len(named) == 101
    assert set(named) <= set(stripped.entries())


def test_another_processor_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(NoMeans, match=r"^breakpoints need Linux on an x86-64 .* linux aarch64$"):
        setter()


def test_a_machine_without_a_compiler_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(NoMeans, match=r"^breakpoints.cpp is not compiled: no compiler no-such-"):
        setter()


def test_the_command_says_in_one_line_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from d5test.cli import main

    def status(*arguments: str) -> int:
        return main(["coverage", "--kernels", *arguments])

    with monkeypatch.context() as patch:
        patch.setenv("CXX", "no-such-compiler")
        assert status("--backend=numpy", "--operator=Relu") == 2
    assert status("--backend=numpy", "--operator=Rleu") == 2
    assert status("--operator=Relu") == 2
    assert status("--backend=numpy", "--dtype=float31") == 2
    assert status("--backend=numpy", "-o", "x.txt") == 2
    lines = capsys.readouterr().err.splitlines()
    words = (
        "no compiler",
        "did you mean",
        "say of which backend",
        "did you mean float32",
        ".md",
    )
    assert len(lines) == len(words)
    assert all(word in line for word, line in zip(words, lines, strict=True)), lines
