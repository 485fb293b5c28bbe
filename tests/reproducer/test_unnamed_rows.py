"""Rows that are lambdas, or stand within a function, have reproducers without d5test too."""

from pathlib import Path

import pytest

from d5test.client.client import WorkerClient
from d5test.reproducer.compose import write
from tests.reproducer.strangers import BACKEND, fault_of, run

ROW = BACKEND[BACKEND.index("@rows.native") : BACKEND.index("class Mine")]
ROWS = {
    "a lambda": "rows.native('Add')(lambda op, x, y: same(x) + y + 1)",
    "one of two in a line": (
        "SUM, OTHER = lambda op, x, y: x + y + 1, lambda op, x, y: same(x) - y\n"
        "rows.native('Add')(OTHER)\nSUM = OTHER = None"
    ),
    "a lambda in several lines": (
        "rows.native('Add')(\n    lambda op, x, y: (\n        same(x)\n        + y  # both\n"
        "        + 1\n    )\n)"
    ),
    "a function of NumPy's from outside": """
def binary(name, f, more):
    @rows.native(name)
    def call(op, x, y):
        '''Twice
        the lines.'''
        return f(same(x), y) + more
    return call

binary('Add', np.add, {'by': [1.0]}['by'][0])
del binary
""",
    "several levels": """
def shifted(f, by):
    return lambda *xs: f(*xs) + by

def binary(f):
    def call(op, *xs):
        return f(*map(same, xs))
    return call

rows.native('Add')(binary(shifted(lambda x, y: np.add(x, y), np.float32(1))))
del binary, shifted
""",
    "values as defaults": """
for name, f in (('Add', np.subtract),):
    rows.native(name)(lambda op, x, y, f=f, *, by=0, low=None: f(x, y) + by)
del f
""",
    "a plan": """
from d5test.backends.base import planned
def entered(f):
    @planned
    def call(op, x, y):
        return lambda x, y: f(x, y) + 1
    rows.native('Add')(call)

entered(np.add)
del entered
""",
}
REFUSED = {
    "an object": """
class Adder:
    by = 1
def entered(adder):
    rows.native('Add')(lambda op, x, y: x + y + adder.by)
entered(Adder())
""",
    "itself": """
def entered():
    def call(op, x, y):
        return x + y + 1 if call else x
    rows.native('Add')(call)
entered()
""",
}


def reproducer(tmp_path: Path, row: str) -> Path:
    """Of a wrong sum by such a row."""
    text = BACKEND.replace(ROW, "{row}\n\n\n").format(row=row, slopes="", facts="")
    (tmp_path / "stranger.py").write_text(text)
    with WorkerClient(f"{tmp_path / 'stranger.py'}:Mine") as client:
        return write(fault_of(client, "forward"), client.about, tmp_path / "out")


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_it_is_cut_out(tmp_path: Path, row: str) -> None:
    path = reproducer(tmp_path, row)
    there = run(path)
    assert there.returncode == 1, there.stdout + there.stderr
    assert there.stdout.splitlines()[-1].startswith("still there")
    text = path.read_text()
    assert "d5test" not in "".join(line for line in text.splitlines() if "import" in line)
    for wrong in ("+ 1", "- y", "+ by", "+ more"):
        text = text.replace(wrong, {"- y": "+ y"}.get(wrong, ""))
    path.write_text(text.replace("np.subtract", "np.add"))
    gone = run(path)
    assert gone.returncode == 0, gone.stdout + gone.stderr


@pytest.mark.parametrize("row", REFUSED.values(), ids=REFUSED)
def test_what_has_no_source_text_is_imported_with_its_backend(tmp_path: Path, row: str) -> None:
    text = reproducer(tmp_path, row).read_text()
    assert "the row of Add has something of which there is no source text" in text
