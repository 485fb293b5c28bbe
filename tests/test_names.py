"""Names that users type: ours, and what they bring in three ways."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from d5test import names
from d5test.names import BadName, chosen, hint, located, resolve, target_of


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory; what is imported from it is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    return tmp_path


def test_one_name_in_three_ways(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "brought.py").write_text("class Thing: pass")
    entry = EntryPoint("thing", "brought:Thing", "d5test.things")
    monkeypatch.setattr(names, "entry_points", lambda group: [entry] * (group == entry.group))
    assert resolve("thing", "ours", {"ours": 3}) == 3
    by_file = resolve("thing", "./brought.py:Thing", {})
    by_module = resolve("thing", "brought:Thing", {})
    by_entry = resolve("thing", "thing", {})
    assert by_module is by_entry
    assert [t.__name__ for t in (by_file, by_module)] == ["Thing", "Thing"]
    with pytest.raises(BadName, match=r"^unknown thing 'thong': did you mean thing\?$"):
        resolve("thing", "thong", {"ours": 3})
    with pytest.raises(BadName, match=r"^unknown whim 'x': there is none$"):
        resolve("whim", "x", {})


def test_a_file_is_one_module_and_its_target_leads_back(here: Path) -> None:
    (here / "one.py").write_text("class A: pass\nclass B: pass")
    a, b = located("thing", "./one.py:A"), located("thing", f"{here}/one.py:B")
    assert a.__module__ == b.__module__
    assert target_of(a) == f"{here / 'one.py'}:A"
    assert located("thing", target_of(a)) is a
    (here / "one.py").write_text("class A: new = True")
    assert located("thing", "./one.py:A").new
    assert target_of(BadName) == "d5test.names:BadName"


def test_neighbours_are_found_and_hide_nothing(here: Path) -> None:
    (here / "colorsys.py").write_text("raise ImportError('hidden')")
    (here / "beside.py").write_text("value = 7")
    (here / "brought.py").write_text("import colorsys, beside\nvalue = beside.value")
    assert located("thing", "./brought.py:value") == 7
    assert located("thing", "brought:value") == 7
    assert sys.path.index(str(here)) == len(sys.path) - 1


def test_what_is_in_the_working_directory_comes_before_what_is_installed(here: Path) -> None:
    (here / "antigravity.py").write_text("value = 'ours'")
    assert located("thing", "antigravity:value") == "ours"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("./none.py:A", "there is no file"),
        ("no_such_module:A", "No module named 'no_such_module'"),
        ("./broken.py:A", "ZeroDivisionError: division by zero"),
        ("./right.py:Wron", "did you mean Wrong?"),
        ("./right.py:", "has no empty name"),
        ("~nosuchuser/x.py:A", "there is no file"),
        (f"./{'x' * 300}.py:A", "there is no file"),
        (f"{'x' * 300}:A", "No module named"),
        ("./nul\0.py:A", "there is no file"),
        (":A", "Empty module name"),
    ],
)
def test_what_cannot_be_loaded_is_one_line(here: Path, name: str, words: str) -> None:
    (here / "broken.py").write_text("1 / 0")
    (here / "right.py").write_text("class Wrong: pass")
    with pytest.raises(BadName) as refused:
        located("thing", name)
    assert words in str(refused.value)
    assert str(refused.value).startswith(f"thing {name!r} cannot be loaded: ")
    assert len(str(refused.value).splitlines()) == 1


def test_a_module_that_fails_is_tried_anew(here: Path) -> None:
    (here / "once.py").write_text("import later\nvalue = later.value")
    with pytest.raises(BadName, match="No module named 'later'"):
        located("thing", "./once.py:value")
    (here / "later.py").write_text("value = 5")
    assert located("thing", "./once.py:value") == 5


def test_hints() -> None:
    assert hint("relu", ["Relu", "Gelu"]) == "did you mean Relu or Gelu?"
    assert hint("xyz", ["Relu", "Gelu"]) == "known: Relu, Gelu"
    assert hint("xyz", map(str, range(20))).endswith("11, ...")
    assert chosen("thing", (), {"a": 1, "b": 2}) == {"a": 1, "b": 2}
    assert list(chosen("thing", ("b", "a"), {"a": 1, "b": 2})) == ["a", "b"]
