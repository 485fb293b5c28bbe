"""d5test judge: what candidates do to be called right, and is not."""

import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent, indent

import pytest

from d5test.cli import main
from d5test.cli.judge import lines
from d5test.modules.judge import Judge
from d5test.modules.problem import Problem
from d5test.modules.verdict import Verdict
from d5test.numerics.judgement import Judgement
from d5test.outcome.tally import add_shares
from tests.nightly import thinned

PROBLEM = '''
"""A layer with an activation."""
import torch
from torch import nn

batch_size = 64
features, hidden = 32, 48


class Model(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.linear = nn.Linear(features, hidden)

    def forward(self, x):
        return torch.softmax(torch.relu(self.linear(x)), dim=1)


def get_inputs():
    return [torch.rand(batch_size, features)]


def get_init_inputs():
    return [features, hidden]
'''
RELU = PROBLEM.replace("torch.softmax(torch.relu(self.linear(x)), dim=1)", "torch.relu(x)")
HEADER = "import gc, threading, time, torch\nfrom torch import nn\n"

HONEST = {
    "the same": "return torch.softmax(torch.relu(self.linear(x)), dim=1)",
    "by hand": """
        y = (x @ self.linear.weight.T + self.linear.bias).clamp(min=0)
        e = torch.exp(y - y.amax(1, keepdim=True))
        return e / e.sum(1, keepdim=True)
        """,
    "out of place": "return self.linear(x).relu_().softmax(1)",
    "transposed": """
        y = torch.relu(self.linear.weight @ x.T + self.linear.bias[:, None])
        return torch.softmax(y, 0).T
        """,
    "one set of sizes": """
        if x.shape != (64, 32):
            raise ValueError("64 rows of 32")
        return torch.softmax(torch.relu(self.linear(x)), dim=1)
        """,
    "without a gradient": """
        with torch.no_grad():
            return torch.softmax(torch.relu(self.linear(x)), dim=1)
        """,
    "even sizes alone": """
        if len(x) % 2:
            raise ValueError("an even number of rows")
        return torch.softmax(torch.relu(self.linear(x)), dim=1)
        """,
    "a NaN that becomes 0": """
        y = self.linear(x)
        return torch.softmax(torch.where(y > 0, y, 0), dim=1)
        """,
}
CHEATS = {
    "float16 inside": """
        y = x.half() @ self.linear.weight.half().T + self.linear.bias.half()
        return torch.softmax(torch.relu(y), dim=1).float()
        """,
    "bfloat16 inside": """
        y = x.bfloat16() @ self.linear.weight.bfloat16().T
        return torch.softmax(torch.relu(y.float() + self.linear.bias), dim=1)
        """,
    "nothing is written": "return torch.empty(len(x), self.linear.out_features)",
    "zeros": "return torch.zeros(len(x), self.linear.out_features)",
    "a cache by address": """
        key = x.data_ptr()
        if key not in self.seen:
            self.seen[key] = torch.softmax(torch.relu(self.linear(x)), dim=1)
        return self.seen[key]
        """,
    "a cache by shape": """
        key = x.shape
        if key not in self.seen:
            self.seen[key] = torch.softmax(torch.relu(self.linear(x)), dim=1)
        return self.seen[key]
        """,
    "one buffer for all calls": """
        key = x.shape
        y = torch.softmax(torch.relu(self.linear(x)), dim=1)
        if key not in self.seen or x.requires_grad:
            self.seen[key] = torch.empty_like(y)
        return self.seen[key].copy_(y)
        """,
    "the input is overwritten": """
        y = torch.softmax(torch.relu(self.linear(x)), dim=1)
        x.data.zero_()
        return y
        """,
    "another activation": "return torch.softmax(self.linear(x), dim=1)",
    "one set of sizes": f"""
        if x.shape == (64, 32):
            return torch.softmax(torch.relu(self.linear(x)), dim=1)
        return torch.full((len(x), self.linear.out_features), {1 / 48})
        """,
    "one set of sizes, and a cache": """
        if x.shape != (64, 32):
            raise ValueError("64 rows of 32")
        key = x.data_ptr()
        if key not in self.seen:
            self.seen[key] = torch.softmax(torch.relu(self.linear(x)), dim=1)
        return self.seen[key]
        """,
    "the last row of an odd number": """
        y = torch.softmax(torch.relu(self.linear(x)), dim=1)
        return torch.cat([y[:-1], y[-1:] * 0]) if len(x) % 2 else y
        """,
    "another axis": "return torch.softmax(torch.relu(self.linear(x)), dim=0)",
    "a tensor found in memory": """
        shape = (len(x), self.linear.out_features)
        found = [t for t in gc.get_objects() if type(t) is torch.Tensor and t.shape == shape]
        return found[0] if found else torch.zeros(shape)
        """,
    "a thread goes on": """
        y = torch.zeros(len(x), self.linear.out_features)

        def fill():
            time.sleep(0.05)
            with torch.no_grad():
                y.copy_(torch.softmax(torch.relu(self.linear(x)), dim=1))

        threading.Thread(target=fill).start()
        return y
        """,
    "computed when it is read": """
        class Lazy(torch.Tensor):
            pass

        return torch.softmax(torch.relu(self.linear(x)), dim=1).as_subclass(Lazy)
        """,
    "right for three calls": """
        self.calls += 1
        y = torch.softmax(torch.relu(self.linear(x)), dim=1)
        return y if self.calls <= 3 else torch.zeros_like(y)
        """,
    "a gradient that is not its own": """
        y = torch.softmax(torch.relu(self.linear(x)), dim=1)
        return y.detach() + (self.linear(x) - self.linear(x).detach())
        """,
}


def candidate(forward: str) -> str:
    body = indent(dedent(forward).strip(), " " * 8)
    return (
        f"{HEADER}\n\nclass ModelNew(nn.Module):\n    def __init__(self, features, hidden):\n"
        "        super().__init__()\n        self.linear = nn.Linear(features, hidden)\n"
        f"        self.seen, self.calls = {{}}, 0\n\n    def forward(self, x):\n{body}\n"
    )


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    path = tmp_path_factory.mktemp("problem") / "problem.py"
    path.write_text(PROBLEM)
    with Judge(path) as made:
        yield made


def written(path: Path, forward: str) -> Path:
    file = path / "candidate.py"
    file.write_text(candidate(forward))
    return file


@pytest.mark.parametrize("forward", HONEST.values(), ids=HONEST)
def test_an_honest_candidate_is_right(judge: Judge, tmp_path: Path, forward: str) -> None:
    verdict = judge.judge(written(tmp_path, forward))
    assert verdict.status == "right", verdict
    assert verdict.gradient == ("no_grad" not in forward)


@pytest.mark.parametrize("forward", CHEATS.values(), ids=CHEATS)
def test_a_cheat_is_wrong(judge: Judge, tmp_path: Path, forward: str) -> None:
    verdict = judge.judge(written(tmp_path, forward))
    assert verdict.status == "wrong", verdict


def test_what_is_right_on_positive_numbers_alone_is_wrong(tmp_path: Path) -> None:
    problem = tmp_path / "problem.py"
    problem.write_text(RELU)
    with Judge(problem) as judge:
        verdict = judge.judge(written(tmp_path, "return x * 1"))
    assert verdict.status == "wrong"


NORM = """
import torch
from torch import nn

rows, columns = 64, 48


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(columns)
        self.gain = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        return {result}


def get_inputs():
    return [torch.rand(rows, columns)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("result", "status"),
    thinned(
        [
            ("self.norm(x) * (1 + self.gain)", "right"),
            (
                "torch.layer_norm(x, (columns,), *self.norm.parameters()) * (1 + self.gain)",
                "right",
            ),
            ("self.norm(x).detach()", "wrong"),
            ("torch.layer_norm(x, (columns,)).detach()", "wrong"),
            ("((self.norm(x) - self.norm.bias) * (1 + self.gain)).detach()", "wrong"),
        ],
    ),
)
def test_parameters_that_begin_as_one_number_are_drawn(
    tmp_path: Path, result: str, status: str
) -> None:
    problem, made = tmp_path / "problem.py", tmp_path / "made.py"
    problem.write_text(NORM.format(name="Model", result="self.norm(x) * (1 + self.gain)"))
    made.write_text(NORM.format(name="ModelNew", result=result))
    with Judge(problem) as judge:
        verdict = judge.judge(made)
    assert verdict.status == status, verdict
    assert any("norm.weight, norm.bias" in note for note in verdict.notes) == (status == "wrong")


def test_what_is_noted(judge: Judge, tmp_path: Path) -> None:
    notes = [
        note
        for name in ("even sizes alone", "a NaN that becomes 0")
        for note in judge.judge(written(tmp_path, HONEST[name])).notes
    ]
    assert len(notes) == 2
    assert notes[0].startswith("not made for sizes that no tile divides, at batch_size=129, ")
    assert "nan in an input is swallowed" in notes[1]


def test_whole_numbers_have_the_dtype_of_the_reference(tmp_path: Path) -> None:
    problem = tmp_path / "problem.py"
    problem.write_text(PROBLEM.replace("dim=1)\n", "dim=1).argmax(1)\n"))
    forward = "return self.linear(x).relu().argmax(1){}"
    with Judge(problem) as judge:
        right, narrow = (judge.judge(written(tmp_path, forward.format(s))) for s in ("", ".int()"))
    assert right.status == "right", right
    assert narrow.status == "wrong"
    assert "wrong dtype" in narrow.faults[0].headline


def test_where_the_reference_is_constant_nothing_is_told(tmp_path: Path) -> None:
    problem = tmp_path / "problem.py"
    problem.write_text(PROBLEM.replace("dim=1)\n", "dim=1).sum(1) * 0\n"))
    with Judge(problem) as judge:
        verdict = judge.judge(written(tmp_path, "return torch.zeros(len(x))"))
    assert verdict.status == "untested"


@pytest.mark.nightly
def test_what_it_does_when_it_is_timed_counts(judge: Judge, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        y = torch.softmax(torch.relu(self.linear(x)), dim=1)
        return y if torch.is_grad_enabled() else torch.zeros_like(y)
        """,
    )
    verdict = judge.judge(path)
    assert verdict.status == "right"
    judge.time(verdict, path)
    assert verdict.status == "wrong"
    assert "timed calls are wrong" in verdict.broken


@pytest.mark.nightly
def test_a_clock_that_the_candidate_replaces_says_nothing(judge: Judge, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        sleep = time.sleep
        time.perf_counter = time.monotonic = time.process_time = lambda: 0.0
        sleep(0.02)
        return torch.softmax(torch.relu(self.linear(x)), dim=1)
        """,
    )
    verdict = judge.judge(path)
    judge.time(verdict, path)
    assert verdict.status == "right"
    assert verdict.times["seconds"]["candidate"][0] > 0.02


@pytest.mark.nightly
def test_a_compiler_of_what_has_no_gradient_makes_none(tmp_path: Path) -> None:
    """AOT autograd traces the backward pass with the forward one, in whose result is written."""
    problem = tmp_path / "problem.py"
    forward = "y = torch.relu(self.linear(x))\n        y += 1\n        return y"
    usual = "return torch.softmax(torch.relu(self.linear(x)), dim=1)"
    problem.write_text(PROBLEM.replace(usual, forward))
    path = tmp_path / "candidate.py"
    compiled = "    forward = torch.compile(Model.forward, backend='aot_eager')\n"
    path.write_text(problem.read_text() + "\n\nclass ModelNew(Model):\n" + compiled)
    with Judge(problem) as judge:
        verdict = judge.judge(path)
    assert verdict.status == "right", verdict
    assert any("the reference has no gradient" in note for note in verdict.notes)


def test_sizes_are_halved_as_far_as_the_model_runs(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(PROBLEM.replace("= 64", "= 1 << 20").replace("32, 48", "4096, 4096"))
    small = Problem(path).smaller(1 << 15)
    assert small.cost().within(1 << 15, 1000 << 15)
    assert set(dict(small.changed)) >= {"features", "hidden"}


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ("x = (", 2, "was never closed"),
        ("import nothing_like_it", 2, "ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("class Model: pass", 2, "has no get_inputs and no get_init_inputs"),
        (PROBLEM.replace("torch.relu(", "torch.dropout("), 2, "TypeError"),
        (PROBLEM.replace("torch.relu(self.linear(x))", "nn.Dropout()(x)"), 2, "draws random"),
    ],
)
def test_a_file_that_is_no_problem_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, status: int, words: str
) -> None:
    problem = tmp_path / "problem.py"
    problem.write_text(text)
    path = written(tmp_path, "return x")
    assert main(["judge", str(path), f"--like={problem}"]) == status
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1


def test_a_device_that_is_not_there_is_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = tmp_path / "problem.py"
    problem.write_text(RELU)
    path = written(tmp_path, "return torch.relu(x)")
    assert main(["judge", str(path), f"--like={problem}", "--device=cuda:77"]) == 2
    assert "no device 'cuda:77' here; there are: cpu" in capsys.readouterr().err


def test_a_folder_of_candidates_is_judged_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = tmp_path / "problem.py"
    problem.write_text(RELU)
    folder = tmp_path / "candidates"
    folder.mkdir()
    (folder / "a.py").write_text(candidate("return torch.relu(x)"))
    (folder / "b.py").write_text(candidate("return x"))
    (folder / "c.py").write_text("class Other: pass")
    (folder / "d.py").write_text(candidate("import os; os.abort()"))
    out = tmp_path / "verdicts.json"
    status = main(["judge", str(folder), f"--like={problem}", f"--json={out}"])
    said = capsys.readouterr().out
    assert status == 1
    assert [v["status"] for v in json.loads(out.read_text())] == ["right", *["wrong"] * 3]
    for words in (
        "[1/4]",
        "a.py: RIGHT, gradients too",
        "the result is wrong on b.py:ModelNew",
        "c.py: WRONG: it cannot be made: ",
        "it has no class ModelNew",
        "the process died",
        "1 right, 3 wrong",
    ):
        assert words in said


def test_where_most_results_are_no_numbers_nothing_is_told(tmp_path: Path) -> None:
    problem = tmp_path / "problem.py"
    results = "torch.cat([x, x * float('nan'), x * float('nan')])"
    problem.write_text(RELU.replace("torch.relu(x)", results))
    with Judge(problem) as judge:
        verdict = judge.judge(written(tmp_path, f"return {results}"))
    assert verdict.status == "untested"


def test_each_output_and_each_gradient_has_to_be_judged() -> None:
    """Many values do not stand for a gradient of which nothing could be."""
    verdict = Verdict("mine.py", telling=3, judged=3, shares=2.9, gradient=True)
    add_shares(verdict.each, Judgement(shares={"result 0": 1.0, "the gradient of input 0": 1.0}))
    assert verdict.status == "right"
    add_shares(verdict.each, Judgement(shares={"the gradient of input 1": 0.0}))
    assert verdict.status == "untested"
    assert "UNTESTED: only 0% of the gradient of input 1 could be judged" in next(lines(verdict))
    assert verdict.to_json()["judged too rarely"] == "0% of the gradient of input 1"
