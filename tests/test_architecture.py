"""Imports run one way, along the layers of docs/architecture.md; frameworks stay at home.

What `if TYPE_CHECKING` and functions import counts as well.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from d5test.worker.worker import OLDEST

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "d5test"
DOCUMENT = ROOT / "docs" / "architecture.md"

HOMES = {
    "torch": ("backends/torch", "native/bridges", "distributed/gloo.py", "engines", "modules"),
    "tensorflow": (
        "backends/tensorflow",
        "native/bridges",
        "engines/tensorflow_parallel.py",
    ),
    "keras": ("backends/tensorflow", "engines/keras_backend.py", "engines/keras_parallel.py"),
    "jax": (
        "backends/jax",
        "native/bridges",
        "engines/jax_parallel.py",
        "engines/keras_parallel.py",
    ),
    "optax": ("backends/jax",),
    "onnxruntime": ("backends/onnxruntime.py",),
    "cupy": ("backends/cupy.py",),
    "mpi4py": ("distributed", "plugin/ranks", "fixtures/comm.py"),
    "dask": ("plugin/cluster",),
    "distributed": ("plugin/cluster",),
    "pytest": ("plugin", "fixtures", "suite.py", "cli", "gate"),
}
"""Where a package may be imported."""


def files() -> list[Path]:
    found = [path for path in PACKAGE.rglob("*.py") if "templates" not in path.parts]
    assert len(found) > 200
    return sorted(found)


@cache
def imported(path: Path) -> tuple[str, ...]:
    """The modules that a file imports, anywhere in it; of `from d5test import x` also x."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            if node.module == "d5test":
                found += [f"d5test.{alias.name}" for alias in node.names]
            else:
                found.append(node.module)
    return tuple(found)


def part_of(path: Path) -> str:
    """The top-level package or module of d5test that a file belongs to."""
    inside = path.relative_to(PACKAGE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def parts() -> set[str]:
    return {part_of(path) for path in files()}


def edges() -> Iterator[tuple[str, str, str]]:
    """Part, the part that it imports, and the file that does."""
    known = parts()
    for path in files():
        for module in imported(path):
            package, _, rest = module.partition(".")
            if package != "d5test":
                continue
            other = rest.partition(".")[0]
            other = other if other in known else "__init__"  # a name that d5test itself has
            if other != part_of(path):
                yield part_of(path), other, str(path.relative_to(ROOT))


def layers() -> list[list[str]]:
    """The layers of the document, from the top: the lines of its first block of code."""
    (block,) = re.findall(r"```layers\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line.partition("  #")[0].split() for line in block.splitlines()]
    return [line for line in lines if line]


def test_each_part_is_in_one_layer() -> None:
    listed = [part for layer in layers() for part in layer]
    assert len(listed) == len(set(listed))
    assert set(listed) == parts(), "the picture in docs/architecture.md has a line for each part"


def test_a_layer_imports_only_from_the_layers_below() -> None:
    height = {part: -i for i, layer in enumerate(layers()) for part in layer}
    found = list(edges())
    assert len(found) > 400
    upwards = sorted(
        f"{file} imports d5test.{other}, which is not below {part} in docs/architecture.md"
        for part, other, file in found
        if height[other] >= height[part]
    )
    assert upwards == []


@pytest.mark.parametrize("package", HOMES)
def test_a_package_is_imported_in_its_home_alone(package: str) -> None:
    elsewhere = [
        str(path.relative_to(PACKAGE))
        for path in files()
        if package in {module.partition(".")[0] for module in imported(path)}
        and not str(path.relative_to(PACKAGE)).startswith(HOMES[package])
    ]
    assert elsewhere == []


def test_what_runs_beside_a_framework_needs_nothing_else_of_ours() -> None:
    """A worker may be another interpreter's, which has NumPy and its framework alone.

    The update rules are NumPy; `names` and `dtypes` are Python. The backends of NumPy and CuPy
    run the references themselves.
    """
    references = (PACKAGE / "backends" / "numpy.py", PACKAGE / "backends" / "cupy.py")
    allowed = (
        "d5test.backends.",
        "d5test.worker.",
        "d5test.dtypes.",
        "d5test.names.",
        "d5test.processor.",
        "d5test.reference.optimizers.",
    )
    beside = [
        path
        for path in files()
        if part_of(path) in ("backends", "worker") and path not in references
    ]
    for path in beside:
        ast.parse(path.read_text(encoding="utf-8"), feature_version=OLDEST)
    strange = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in beside
        for module in imported(path)
        if module.startswith("d5test.") and not f"{module}.".startswith(allowed)
    ]
    assert strange == []


def test_every_file_and_link_that_the_document_names_is_there() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    named = re.findall(r"`((?:d5test|suites|tests|docs)/[\w/.]+)`", text)
    linked = re.findall(r"\]\(([\w./]+\.md)", text)
    assert len(named) > 20
    missing = [name for name in named if not (ROOT / name).exists()]
    missing += [name for name in linked if not (DOCUMENT.parent / name).exists()]
    assert missing == []
