"""What docs/extending.md has you write is run and judged; what it lists is what there is."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from d5test.numerics.arithmetic import classes
from d5test.numerics.bars import Bar
from d5test.numerics.elementary import CLASSIFICATIONS, STEPS, TABLE
from d5test.numerics.functions import RULES
from d5test.numerics.tracked import INSTEAD, JOINS, MOVES, SPLITS
from d5test.plugin.selection import PLAIN

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", TEXT, re.DOTALL))
OPERATORS = ROOT / "suites" / "operators"


def run(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A run of pytest in a folder that has the files of the document."""
    for name, block in BLOCKS.items():
        (folder / name).write_text(block)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, arguments)],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_check(tmp_path: Path) -> None:
    ran = run(tmp_path, "-p", "d5test.plugin", "test_signs.py", "--backend=numpy", "--examples=3")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "4 passed" in ran.stdout
    assert "cases were right, none was wrong on numpy" in ran.stdout


def test_a_check_finds_what_it_is_for(tmp_path: Path) -> None:
    """A Relu that lets the smallest number through is caught by the check of one's own."""
    (tmp_path / "leaky.py").write_text(
        "import numpy as np\n"
        "from d5test.backends.base import Row\n"
        "from d5test.backends.numpy import Numpy\n"
        "class Leaky(Numpy):\n"
        "    rows = {**Numpy.rows, 'Relu': Row(lambda op, x: np.asarray(np.maximum(x, x / 8)))}\n"
    )
    ran = run(
        tmp_path, "-p", "d5test.plugin", "test_signs.py", "--backend=./leaky.py:Leaky",
        "--examples=5", "--dtype=float32",
    )  # fmt: skip
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 failed, 1 passed" in ran.stdout
    assert "Relu(): a result is negative on" in ran.stdout


def test_a_check_of_ours_may_be_narrowed(tmp_path: Path) -> None:
    (tmp_path / "test_narrow.py").write_text(
        "from d5test.checks import gradient\n"
        "from d5test.reference.operators import Abs, Tanh\n"
        "from d5test.suite import given_cases\n"
        "@given_cases(gradient, operators=(Abs, Tanh), dtypes=('float64',))\n"
        "def test_slope(backend, case):\n"
        "    return gradient(backend, case)\n"
    )
    listed = run(
        tmp_path, "-p", "d5test.plugin", "test_narrow.py", "--backend=numpy", "--collect-only"
    )
    assert re.findall(r"\[numpy-(\w+-\w+)\]", listed.stdout) == ["Abs-float64", "Tanh-float64"]


@pytest.mark.parametrize(
    ("backend", "operators"),
    [("./lazy.py:Lazy", "Conv,LeakyRelu"), ("./cube_jax.py:Mine", "./cube.py:Cube")],
    ids=["a backend", "an operator"],
)
def test_what_is_judged(tmp_path: Path, backend: str, operators: str) -> None:
    pytest.importorskip("jax")
    ran = run(
        tmp_path, OPERATORS, f"--backend={backend}", f"--operator={operators}",
        "--examples=3", "--check=forward,gradient,low_precision,determinism,declared_dtypes",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "none was wrong" in ran.stdout


def test_a_communicator(tmp_path: Path) -> None:
    ran = run(
        tmp_path, ROOT / "suites" / "distributed" / "test_allreduce.py",
        "--comm=./ringed.py:Mine", "--dtype=float32", "--examples=3",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "none was wrong" in ran.stdout


def test_a_kernel_in_a_backend_of_ours(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    ran = run(
        tmp_path, OPERATORS / "test_forward.py", "--backend=./kernel.py:Mine",
        "--operator=Softmax,LogSoftmax", "--dtype=float32",
    )  # fmt: skip
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 failed, 1 passed" in ran.stdout
    assert "Softmax() composed by its row of torch.exp" in ran.stdout


def test_a_compressor(tmp_path: Path) -> None:
    suite = ROOT / "suites" / "distributed" / "test_compression.py"
    ran = run(tmp_path, suite, "--compressor=./signs.py:Signs", "--examples=3")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "12 passed" in ran.stdout
    assert "none was wrong" in ran.stdout


def test_plain_files_stay_out_where_tests_are_chosen(tmp_path: Path) -> None:
    listed = run(tmp_path, OPERATORS, "--backend=numpy", "--operator=Relu", "--collect-only")
    assert "test_forward.py" in listed.stdout
    assert PLAIN not in listed.stdout
    named = run(
        tmp_path, OPERATORS / PLAIN, "--backend=numpy", "--operator=Relu", "--collect-only"
    )
    assert f"{PLAIN}::test_softmax[numpy]" in named.stdout


def test_the_functions_of_a_reference_are_listed() -> None:
    (table,) = re.findall(r"\| kind \| functions \|\n(.*?)\n\n", TEXT, re.DOTALL)
    listed = set(re.findall(r"`([\w.]+)`", table)) - {"scipy.special.erf"}
    listed = {name.rpartition(".")[2] for name in listed} | {"erf"}
    ruled = {f.__name__ for f in (*MOVES, *SPLITS, *JOINS, *RULES)}
    primitives = {f.__name__ for f in (*TABLE, *STEPS, *CLASSIFICATIONS)}
    silent = {"shape", "ndim", "size", "result_type"}
    assert (ruled | primitives) - silent <= listed
    assert listed - ruled - primitives <= {
        "matmul", "maximum", "minimum", "sign", "at", "accumulate", "zeros",
    }  # fmt: skip


@pytest.mark.parametrize("name", INSTEAD)
def test_what_a_reference_may_not_call_says_what_to_write(name: str) -> None:
    x = Bar(np.ones((2, 3)), arithmetic=classes("float32")[0])
    arguments: Sequence[Bar] = (x, x) if name in {"inner", "outer"} else (x,)
    place = np.linalg if name == "norm" else np
    function = place
    for part in name.split("."):
        function = getattr(function, part)
    given = [arguments] if name in {"hstack", "vstack"} else arguments
    with pytest.raises(TypeError, match=f"may not call numpy.{name}.*use ") as raised:
        function(*given)  # type: ignore[operator]
    assert INSTEAD[name] in str(raised.value)
