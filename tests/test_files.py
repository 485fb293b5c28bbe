"""Files are replaced whole or left as they were; what is read takes bounded memory."""

import errno
import gzip
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5test.files import BYTES, TooLarge, parsed, replace, replacing, unzipped


def test_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "ä.json"
    replace(path, "één\n")
    assert path.read_bytes() == "één\n".encode()
    replace(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["ä.json"]


@pytest.mark.parametrize(
    "broken", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), ValueError()]
)
def test_whatever_ends_it_the_file_of_before_is_there(
    broken: BaseException, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_text("before")
    with pytest.raises(type(broken)) as caught:
        _begin(path, broken)
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["report.html"]
    if isinstance(broken, OSError):
        assert isinstance(caught.value, OSError)
        assert (caught.value.filename, caught.value.errno) == (str(path), errno.ENOSPC)


def _begin(path: Path, broken: BaseException) -> None:
    with replacing(path) as file:
        file.write(b"half")
        raise broken


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_shows_at_the_end(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "corpus.json"
    path.write_text("before")
    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left on device"):
        replace(path, "after")
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["corpus.json"]


def test_mode_and_link_stay(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "target", tmp_path / "link"
    target.write_text("before")
    target.chmod(0o640)
    link.symlink_to(target)
    replace(link, "after")
    assert link.is_symlink()
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("after", 0o640)


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    replace(tmp_path / "ours", "x")
    (tmp_path / "usual").write_text("x")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_what_is_no_regular_file_is_written_to(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left on device"):
        replace("/dev/full", "x")
    assert not Path("/dev/full").is_file()
    replace("/dev/null", "x")
    with pytest.raises(IsADirectoryError):
        replace(tmp_path, "x")


def test_a_name_of_any_length_that_the_system_takes(tmp_path: Path) -> None:
    replace(tmp_path / ("n" * 255), "x")
    with pytest.raises(OSError, match="name too long"):
        replace(tmp_path / ("n" * 256), "x")


def test_kill_leaves_the_file_of_before(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    path.write_text("before")
    program = (
        "import os, signal, sys; from d5test.files import replacing\n"
        "with replacing(sys.argv[1]) as file:\n"
        "    file.write(b'x' * 10**6); file.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    ran = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert ran.returncode == -signal.SIGKILL
    assert path.read_text() == "before"


def test_what_unpacks_to_more_is_refused_before_it_is_unpacked() -> None:
    bomb = gzip.compress(b"\0" * (64 << 20))
    tracemalloc.start()
    with pytest.raises(TooLarge, match="larger than 1 MiB when unpacked"):
        unzipped(bomb, 1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize("cut", [0, 1, 5, 12, 20])
def test_what_is_no_gzip_is_a_value_error(cut: int) -> None:
    whole = gzip.compress(np.random.default_rng(1).bytes(40))
    with pytest.raises(ValueError, match="not gzip"):
        unzipped(whole[:cut] or b"\0", 1 << 20)
    damaged = bytearray(whole)
    damaged[12] ^= 255
    with pytest.raises(ValueError, match="not gzip"):
        unzipped(bytes(damaged), 1 << 20)


@pytest.mark.parametrize(
    "element", ["[]", "{}", '{"a":{}}', "[[]]", '{"ab":1.5}', "1.5", "12345678", '"ab"', "[0,0]"]
)
def test_the_bound_of_json_is_above_what_python_takes(element: str) -> None:
    """Measured on text of a 16th of the bound: whatever it is made of, it takes no more."""
    count = 1
    text = f"[{element}]".encode()
    tracemalloc.start()
    for _ in range(24):
        text = f"[{','.join([element] * count)}]".encode()
        if cost(text) > BYTES // 32:
            break
        count *= 2
    tracemalloc.clear_traces()
    made = parsed(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(made) == count
    assert peak - len(text) < 1.3 * cost(text)


def cost(text: bytes) -> int:
    from d5test.files import COSTS

    return len(text) + sum(cost * text.count(sign) for sign, cost in COSTS.items())


def test_json_that_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(TooLarge, match="larger than 384 MiB in memory"):
        parsed(b"[" + b"[]," * (4 << 20) + b"[]]")
    assert parsed(json.dumps({"a": [1, 2.5, None]}).encode()) == {"a": [1, 2.5, None]}
