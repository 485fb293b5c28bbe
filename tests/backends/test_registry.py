"""Which backend a name means, and what is said when it means none."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from d5test.client.registry import (
    BUILTIN,
    Spec,
    UnknownBackend,
    installed,
    known,
    missing,
    resolve,
)

ROOT = Path(__file__).parents[2]


def test_names_and_targets() -> None:
    assert resolve("torch") == Spec("torch", "d5test.backends.torch:Torch")
    assert resolve("package.module:Name") == Spec("package.module:Name", "package.module:Name")
    file = Path(__file__).with_name("tiny.py")
    assert resolve(f"{file}:Tiny").target == f"{file}:Tiny"


def test_a_file_is_found_from_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    file = Path(__file__).with_name("tiny.py")
    assert resolve("./tiny.py:Tiny").target == f"{file}:Tiny"
    with pytest.raises(UnknownBackend, match=r"there is no file .*/huge\.py"):
        resolve("./huge.py:Tiny")


def test_another_interpreter(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    for where in (python, tmp_path):
        spec = resolve(f"torch@{where}")
        assert spec == Spec(f"torch@{where}", BUILTIN["torch"], str(python))
    with pytest.raises(UnknownBackend, match="no interpreter '/nowhere/python'"):
        resolve("torch@/nowhere/python")
    with pytest.raises(UnknownBackend, match="no interpreter ''"):
        resolve("torch@")


def test_an_unknown_name_has_neighbours_and_what_is_installed() -> None:
    with pytest.raises(UnknownBackend) as caught:
        resolve("tensorflw")
    text = str(caught.value)
    assert "no backend 'tensorflw'; did you mean tensorflow" in text
    assert "installed: numpy" in text
    with pytest.raises(UnknownBackend, match=r"that is not a Python file"):
        resolve("./mine.json:Mine")
    for wrong in ("", ":", "a:", ":b", "torch:"):
        with pytest.raises(UnknownBackend):
            resolve(wrong)


def test_every_name_is_installed_or_missing() -> None:
    assert "numpy" in installed()
    assert {*installed(), *missing()} == set(known())
    assert not set(installed()) & set(missing())
    assert all(how.startswith(("pip install ", "install ")) for how in missing().values())


def test_the_table_is_that_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["d5test.backends"] == dict(BUILTIN)


def test_nothing_is_imported() -> None:
    code = (
        "import sys; from d5test.client import client, registry; registry.installed(); "
        "names = {'torch', 'jax', 'tensorflow', 'onnxruntime', 'hypothesis', 'scipy.stats'}; "
        "assert not names & set(sys.modules), names & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
