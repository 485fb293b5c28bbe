"""Sides that are commits: found in a folder of results, by what the files say."""

import json
import subprocess
from pathlib import Path

import pytest

from d5test.compare import Unreadable, read_sides
from d5test.compare.reading import INDEX, files_of
from tests.compare.files import benchmark, name, write

OLD, NEW = "1" * 40, "2" * 40


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two runs of an old commit, one of a new one, one of a tree with changes, and strangers."""
    folder = tmp_path / "results"
    (folder / "Linux").mkdir(parents=True)
    for file, commit, dirty, least in (
        ("a", OLD, False, 1e-3), ("b", OLD, False, 2e-3), ("c", NEW, False, 3e-3),
        ("d", NEW, True, 4e-3),
    ):  # fmt: skip
        path = write(folder / "Linux" / f"{file}.json", [benchmark("one", least)])
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, "commit_info": {"id": commit, "dirty": dirty}}))
    (folder / "strange.json").write_text("[1, 2")
    (folder / "other.json").write_text("[]")
    return folder


def test_a_commit_is_its_files(results: Path) -> None:
    assert [path.name for path in files_of(OLD, results)] == ["a.json", "b.json"]
    assert [path.name for path in files_of(NEW[:7], results)] == ["c.json"]
    assert files_of("333333", results) == files_of("1", results) == []
    old, new = read_sides((OLD[:8], NEW), results=results)
    assert (len(old), len(new)) == (2, 1)


def test_the_index_is_kept_and_follows_the_files(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files_of(OLD, results)
    assert set(json.loads((results / INDEX).read_text())) > {"Linux/a.json", "strange.json"}
    read: list[Path] = []
    monkeypatch.setattr("d5test.compare.reading._commit", lambda path: read.append(path) or NEW)
    assert len(files_of(OLD, results)) == 2
    assert not read
    (results / "Linux" / "a.json").write_text("changed")
    (results / "Linux" / "b.json").unlink()
    assert files_of(OLD, results) == []
    assert read == [results / "Linux" / "a.json"]


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"Linux/a.json": {"stamp": 1}}', "\xff"])
def test_a_damaged_index_is_made_anew(results: Path, text: str) -> None:
    (results / INDEX).write_text(text)
    assert len(files_of(OLD, results)) == 2


def test_names_are_gits(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    who = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    for words in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "one"]):
        subprocess.run(["git", *words], check=True)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    path = results / "Linux" / "a.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "commit_info": {"id": head}}))
    assert files_of("HEAD", results) == [path]
    assert files_of("--all", results) == []


def test_what_is_no_file_and_no_commit_is_one_line(results: Path) -> None:
    with pytest.raises(Unreadable, match="no run of such a commit in") as error:
        read_sides(("main", NEW), results=results / "nowhere")
    assert "\n" not in str(error.value)


def test_the_index_is_no_run_of_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "a.json", [benchmark(name(0), 1e-3)])
    (tmp_path / INDEX).write_text("{}")
    ((run,),) = read_sides((str(tmp_path),))
    assert run.path == str(tmp_path / "a.json")
