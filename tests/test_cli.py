"""The command line: what it prints and the status that it ends with."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from d5test import __version__
from d5test.cli import main
from d5test.cli.run import arguments, suites
from d5test.files import folder_of_suites
from d5test.problems.corpus import corpus
from d5test.reproducer.mark import STATUSES, head
from tests.compare.files import sides

ROOT = Path(__file__).parents[1]


def d5test(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; from d5test.cli import main; sys.exit(main())"
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=env, cwd=cwd, check=False
    )  # fmt: skip


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A project whose pytest configuration would spoil any run that obeys it."""
    (tmp_path / "conftest.py").write_text("raise SystemExit('the foreign conftest is loaded')")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--nonsense'")
    return tmp_path


def test_the_command_imports_no_plugin() -> None:
    """Pytest rewrites the assertions of plugins, and warns of those that are imported before."""
    code = (
        "import sys, d5test.cli; print([m for m in sys.modules if m.startswith('d5test.plugin')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_mistyped_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctr"])
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "did you mean doctor?" in said[0]


def test_a_mistyped_suite_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "operator", "--backend=numpy"])
    assert ended.value.code == 2
    assert "did you mean operators?" in capsys.readouterr().err


def test_suites_are_those_with_tests() -> None:
    assert "operators" in suites()
    assert (folder_of_suites() / "pytest.ini").is_file()


def test_a_new_backend_works_in_a_foreign_project(foreign: Path) -> None:
    assert d5test("new", "backend", "Mine", cwd=foreign).returncode == 0
    done = d5test(
        "run", "operators", "--backend=./d5test_mine.py:Mine", "--operator=Relu,Softmax,Add",
        "--check=forward,declared_dtypes,degenerate", "--examples=3", "--junitxml=out/report.xml",
        cwd=foreign,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (foreign / "out" / "report.xml").is_file()


def test_a_backend_hides_neither_modules_nor_its_framework(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside it lies a module named like the standard library's; it is named like its framework.

    The command itself, as a script, does not look into the working directory.
    """
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    (tmp_path / "string.py").write_text("raise ImportError('the neighbour was imported')")
    (tmp_path / "own_rows.py").write_text("names = ('Relu',)")
    (tmp_path / "numpy.py").write_text(
        "import string\nimport numpy as np\nfrom own_rows import names\n"
        "from d5test.backends.numpy import Numpy\n"
        "string.ascii_letters, np.ndarray\n"
        "class Mine(Numpy):\n    rows = {name: Numpy.rows[name] for name in names}\n"
    )
    done = d5test(
        "run", "operators", "--backend=./numpy.py:Mine", "--check=forward", "--examples=2",
        "--dtype=float32", "--operator=Relu", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_statuses_of_pytest_are_passed_through(foreign: Path) -> None:
    done = d5test("run", "operators", "--backend=nump", cwd=foreign)
    assert done.returncode == 4
    assert "did you mean numpy" in done.stderr + done.stdout
    (foreign / "wrong.py").write_text(
        "from d5test.backends.numpy import Numpy\n"
        "from d5test.backends.base import Row\n"
        "class Wrong(Numpy):\n"
        "    rows = {**Numpy.rows, 'Neg': Row(lambda op, x: x, gradient='none')}\n"
    )
    done = d5test(
        "run", "operators", "--backend=./wrong.py:Wrong", "--operator=Neg", "--check=forward",
        "--examples=3", cwd=foreign,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    files = list((foreign / ".d5test" / "reproducers").glob("Neg-forward-*.py"))
    assert len(files) == 2
    again = d5test("repro", ".d5test/reproducers", cwd=foreign)
    assert again.returncode == 1, again.stdout + again.stderr
    assert again.stdout.count("still there") >= 2


def test_a_new_operator_works(tmp_path: Path) -> None:
    assert d5test("new", "operator", "Grow", cwd=tmp_path).returncode == 0
    (tmp_path / "backend.py").write_text(
        "from d5test.backends.base import Row\n"
        "from d5test.backends.numpy import Numpy\n"
        "class Mine(Numpy):\n"
        "    rows = {**Numpy.rows, 'Grow': Row(lambda op, x: x + x**op.power, "
        "dtypes=('float64', 'float32'), gradient='none')}\n"
    )
    done = d5test(
        "run", "operators", "--backend=./backend.py:Mine", "--operator=./grow.py:Grow",
        "--check=forward", "--examples=5", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_nothing_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d5test_mine.py").write_text("precious")
    assert main(["new", "backend", "Mine"]) == 2
    assert "d5test_mine.py is there already" in capsys.readouterr().err
    assert (tmp_path / "d5test_mine.py").read_text() == "precious"
    assert main(["new", "operator", "not-a-name"]) == 2
    for word in ("template", "class", "None", "not-a-name"):
        assert main(["native", "new", word]) == 2


def test_it_is_a_module_too() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "d5test", "corpus"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert f"corpus {corpus().version} ({corpus().hash})" in ran.stdout


def reproducer(path: Path, body: str, interpreter: str | None = None) -> Path:
    """A file with d5test's mark; without an interpreter, as earlier versions wrote it."""
    first = f"{head(interpreter)}\n" if interpreter else ""
    path.write_text(f'{first}"""A fault.\n\nRun it. {STATUSES}\n"""\n{body}\n')
    return path


def other_python(path: Path) -> Path:
    """An interpreter that can be told from this one."""
    path.write_text(f'#!/bin/sh\nOTHER=there exec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return path


THERE = "print('still there: 3'); raise SystemExit(1)"
GONE = "print('gone (x 1)')"


def test_reproducers_are_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for body, status, told in (
        (GONE, 0, "gone (x 1)"),
        (THERE, 1, "still there: 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 1, "died by signal 9"),
        ("print('cannot be tried: no'); raise SystemExit(2)", 2, "no (status 2)"),
        ("import no_framework", 2, "No module named 'no_framework' (status 1)"),
        ("def main():\n    raise SystemExit(1)", 2, "it says nothing (status 0)"),
        ("raise SystemExit(1)", 2, "it says nothing (status 1)"),
        ("print('gone (x 1)'); raise SystemExit(1)", 2, "(status 1)"),
    ):
        path = reproducer(tmp_path / "x.py", body)
        assert main(["repro", str(path)]) == status, body
        said = capsys.readouterr()
        assert told in " ".join((said.err if status == 2 else said.out).split())
        assert len(said.err.splitlines()) == (status == 2)


def test_a_reproducer_runs_under_the_interpreter_of_its_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = other_python(tmp_path / "other")
    body = f"import os\nif 'OTHER' in os.environ:\n    {THERE}\n{GONE}"
    path = reproducer(tmp_path / "x.py", body, str(other))
    assert main(["repro", str(path)]) == 1
    assert f"under {other}:" in capsys.readouterr().out
    assert main(["repro", str(path), "--python", sys.executable]) == 0
    assert f"under {sys.executable}:" in capsys.readouterr().out
    assert main(["repro", str(path), "--python", "/no/python"]) == 2
    assert "/no/python" in capsys.readouterr().err
    other.unlink()
    assert main(["repro", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"its interpreter {other} cannot be started" in line
    assert "--python" in line


def test_a_reproducer_finds_d5test_under_an_interpreter_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    body = f"from d5test.worker.worker import load\nload({str(tmp_path / 'mine.py')!r} + ':Mine')"
    (tmp_path / "mine.py").write_text("from d5test.names import hint\nclass Mine: pass\n")
    path = reproducer(tmp_path / "x.py", f"{body}\n{GONE}", str(bare))
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    alone = subprocess.run([bare, path], capture_output=True, text=True, check=False, env=env)
    assert "No module named 'd5test'" in alone.stderr
    assert main(["repro", str(path)]) == 0, capsys.readouterr().err


def test_what_is_no_reproducer_is_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = tmp_path / "ran"
    alien = tmp_path / "alien.py"
    alien.write_text(f"open({str(ran)!r}, 'w')\nprint('gone')")
    cut = reproducer(tmp_path / "cut.py", f"open({str(ran)!r}, 'w')\ndef main(")
    for path, why in ((alien, "d5test did not write it"), (cut, "cut or changed")):
        assert main(["repro", str(path)]) == 2
        said = capsys.readouterr()
        (line,) = said.err.splitlines()
        assert f"{path} is not a reproducer: " in line
        assert why in line
        assert not said.out
    assert not ran.exists()


def test_all_files_are_judged_and_a_fault_outweighs_what_gives_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = str(reproducer(tmp_path / "gone.py", GONE))
    there = str(reproducer(tmp_path / "there.py", THERE))
    missing, empty = str(tmp_path / "missing.py"), tmp_path / "empty"
    empty.mkdir()
    assert main(["repro", missing, gone]) == 2
    said = capsys.readouterr()
    assert "gone (x 1)" in said.out
    assert said.err == f"d5test repro: there is no file {missing}\n"
    assert main(["repro", missing, there, gone]) == 1
    said = capsys.readouterr()
    assert "still there: 3" in said.out
    assert "gone (x 1)" in said.out
    assert missing in said.err
    assert main(["repro", str(empty)]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"d5test repro: there is no reproducer in {empty}\n")


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_who_is_cut_off_is_silent_and_gives_no_verdict(tmp_path: Path, form: str) -> None:
    code = "import sys; from d5test.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "compare", *sides(tmp_path), f"--format={form}"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, cwd=tmp_path, text=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        said = running.stderr.read()
    assert said == ""
    assert running.returncode == 128 + signal.SIGPIPE


def test_a_full_output_is_no_verdict(tmp_path: Path) -> None:
    """Status 1 would say that it regressed."""
    command = [sys.executable, "-m", "d5test", "compare", *sides(tmp_path)]
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert ran.returncode == 2
    assert ran.stderr == (
        "d5test compare: the output cannot be written: No space left on device\n"
    )


def test_a_crash_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("as if")

    monkeypatch.setattr("d5test.compare.compare", broken)
    assert main(["compare", *sides(tmp_path)]) == 3
    err = capsys.readouterr().err
    assert "ZeroDivisionError: as if" in err
    assert err.splitlines()[-1].startswith("d5test compare: a fault of d5test itself, and no verd")


def test_an_interrupt_has_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("d5test.compare.compare", interrupted)
    assert main(["compare", *sides(tmp_path)]) == 128 + signal.SIGINT
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "arguments", [["compare", "ü.json", "x.json"], ["repro", "ü.py"], ["verify", "ü.html"]]
)
def test_a_terminal_without_the_letters_of_a_path(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "ü.html").write_text("no page")
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    ran = subprocess.run(
        [sys.executable, "-m", "d5test", *arguments],
        cwd=tmp_path, env={**os.environ, **plain}, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert ran.returncode == 2
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"d5test {arguments[0]}: ")
    assert "\\udcc3\\udcbc" in line


def test_a_report_that_finds_no_room_leaves_the_one_of_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "report.html"
    path.write_text("the one of before")
    given = sides(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    assert main(["report", *given, "-o", str(path)]) == 2
    assert capsys.readouterr().err == f"d5test report: {path}: No space left on device\n"
    assert path.read_text() == "the one of before"
    assert not list(tmp_path.glob(".d5test*"))


def test_doctor_says_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", "--backend=numpy"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["backends"]["numpy"]["operators"] > 40
    assert found["backends"]["numpy"]["devices"] == ["cpu"]
    assert "GiB" in found["machine"]["memory"]
    assert "thread" in found["machine"]["BLAS"]


def test_doctor_goes_on_after_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import no_such_framework\n")
    assert main(["doctor", f"--backend={broken}:Broken,numpy"]) == 1
    said = capsys.readouterr().out
    assert "cannot be used" in said
    assert "no_such_framework" in " ".join(said.split())
    assert "numpy" in said


def test_doctor_prints_each_line_as_it_is_known(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(
        "import time\n"
        "from pathlib import Path\n"
        "while not Path('numpy is known').exists():\n"
        "    time.sleep(0.1)\n"
        "raise ImportError('a library is missing: ' + 80 * 'x')\n"
    )
    command = ["doctor", "--backend=./waiting.py:Waiting,numpy"]
    with subprocess.Popen(
        [sys.executable, "-m", "d5test", *command], stdout=subprocess.PIPE, text=True,
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "40"},
    ) as running:  # fmt: skip
        assert running.stdout is not None
        lines = []
        for line in running.stdout:
            lines.append(line.rstrip("\n"))
            if line.startswith("numpy "):
                assert running.poll() is None  # and the other is still waited for
                (tmp_path / "numpy is known").touch()
    assert running.returncode == 1
    assert lines[0].split() == ["d5test", __version__]
    numpy, waiting = lines[-2:]
    assert "operators in float64 float32 float16 bfloat16" in numpy
    assert waiting.startswith("./waiting.py:Waiting  cannot be used: ")
    assert any(len(line) > 80 for line in lines)


def test_a_locale_without_umlauts_ends_nothing(tmp_path: Path) -> None:
    """In C's locale a path has surrogates; where the output is ASCII, and strict, it has none."""
    folder = tmp_path / "p\u00e4th"
    folder.mkdir()
    (folder / "wrong.py").write_text(
        "from d5test.backends.numpy import Numpy\n"
        "from d5test.backends.base import Row\n"
        "class Wrong(Numpy):\n"
        "    rows = {'Neg': Row(lambda op, x: x, gradient='none')}\n"
    )
    without = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable, "-m", "d5test", "run", "operators", "--operator=Neg", "--check=forward",
        f"--backend={folder}/wrong.py:Wrong", "--dtype=float32", "--examples=3",
        f"--record-known={folder}/known.toml",
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, env=env | without, cwd=folder, check=False)
    assert ran.returncode == 1, ran.stderr
    assert b"Unicode" not in ran.stdout + ran.stderr
    (file,) = (folder / ".d5test" / "reproducers").iterdir()
    assert (folder / "known.toml").read_text().count("[[known]]") == 1
    for own in (without, {"PYTHONIOENCODING": "ascii"}):
        for words in (["repro", str(file)], ["compare", f"{folder}/x.json", "y.json"]):
            command = [sys.executable, "-m", "d5test", *words]
            ran = subprocess.run(
                command, capture_output=True, env=env | own, cwd=folder, check=False
            )
            assert ran.returncode == (1 if "repro" in words else 2), ran.stderr
            assert b"Traceback" not in ran.stderr


def test_a_cache_that_is_switched_off_has_no_setting() -> None:
    assert any(word.startswith("cache_dir=") for word in arguments("operators", []))
    for words in (["-p", "no:cacheprovider"], ["-pno:cacheprovider"]):
        assert not any(word.startswith("cache_dir=") for word in arguments("operators", words))
