"""The corpus: what it holds never changes, and what is exported is what it says."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from d5test.case import Case, Tensor, is_float
from d5test.cli import main
from d5test.numerics.bounds import double
from d5test.problems.corpus import FILE, Corpus, Damaged, corpus, digest, read
from d5test.problems.exporting import export
from d5test.problems.freezing import COUNTS, chosen, extended
from d5test.reference.operators import OPERATORS

RELEASED = {
    1: "a4038f48f6a2ca47",
    2: "a60d7c66f0f87ea0",
    3: "e7b127200920d05f",
    4: "685ea8704e72706c",
    5: "65d35940668cf876",
    6: "284fad037f64f6f0",
}
"""The hash of each version. An entry never changes: `d5test corpus make` makes the next one, and
prints the line that is added here."""
"""Cases of an operator."""
DATA = "test_data_set_0"


def without(operator: str) -> Corpus:
    """The corpus as if there had been no such operator."""
    kept = tuple(p for p in corpus().problems if p.case.op.name != operator)
    return replace(corpus(), problems=kept)


def test_what_was_released_is_what_is_there() -> None:
    version, made = corpus().version, corpus().hash
    assert version in RELEASED, f"add the new version to RELEASED: {version}: {made!r}"
    assert made == RELEASED[version]
    assert FILE.read_text(encoding="utf-8") == corpus().text()


def test_each_recipe_makes_the_bytes_that_it_made() -> None:
    other = [p.name for p in corpus().problems if digest(p.case) != corpus().data[p.name]]
    assert other == []


def test_each_operator_has_its_cases() -> None:
    cells = Counter((p.case.op.name, p.case.dtype) for p in corpus().problems)
    names = {name for name, cls in OPERATORS.items() if not cls.random}
    missing = sorted(names - {name for name, _ in cells})
    assert not missing, f"`d5test corpus make` freezes cases of {', '.join(missing)}"
    floating = {
        p.case.op.name
        for p in corpus().problems
        if hasattr(p.case.op, "output_datatype")
        or any(t is not None and is_float(t.dtype) for t in p.case.inputs)
    }
    assert cells == {
        (name, dtype): n
        for name in names
        for dtype, n in COUNTS.items()
        if name in floating or dtype == "float32"
    }
    assert len({p.name for p in corpus().problems}) == len(corpus().problems)


def test_float64_needs_no_function_that_machines_differ_in() -> None:
    portable = {"uniform", "ties", "onehot", "below", "within", "mask", "constant"}
    portable |= {"crowded", "near"}  # whole numbers times a spacing, and consecutive numbers
    portable |= {"naturals", "cycled", "special"}
    tensors = [t for p in corpus().problems for t in p.case.inputs if t is not None]
    wide = {t.values[0] for t in tensors if t.dtype == "float64" and t.data is None}
    assert wide <= portable
    assert {t.values[0] for t in tensors} - portable >= {"normal", "heavy", "positive"}


@pytest.mark.parametrize(
    "changed",
    [
        {"seed": 1},
        {"inputs": (Tensor((3, 2)),)},
        {"inputs": (Tensor((2, 3), "float16"),)},
        {"inputs": (Tensor((2, 3), values=("uniform",)),)},
    ],
)
def test_the_hash_is_of_the_data(changed: dict[str, object]) -> None:
    case = Case(OPERATORS["Relu"](), (Tensor((2, 3)),))
    assert digest(case) == digest(replace(case))
    assert digest(replace(case, **changed)) != digest(case)


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "corpus.json"
    content = json.loads(FILE.read_text())
    content["cases"][17]["seed"] += 1
    for wrong in (json.dumps(content), "{", "[]", json.dumps({**content, "cases": [{}]})):
        path.write_text(wrong)
        with pytest.raises(Damaged):
            read(path)


def test_a_new_operator_is_added_and_nothing_else_changes() -> None:
    before = without("Softmax")
    after = extended(before, seed=5)
    assert after.version == before.version + 1
    assert after.hash != before.hash
    added = [p for p in after.problems if p.name not in {q.name for q in before.problems}]
    assert Counter(p.case.dtype for p in added) == COUNTS
    assert {p.case.op.name for p in added} == {"Softmax"}
    kept = [p.case for p in after.problems if p.case.op.name != "Softmax"]
    assert kept == [p.case for p in before.problems]
    assert all(after.data[p.name] == before.data[p.name] for p in before.problems)


def test_what_is_drawn_depends_on_the_seed_alone() -> None:
    cases = chosen(OPERATORS["Gemm"], "float32", seed=3)
    assert cases == chosen(OPERATORS["Gemm"], "float32", seed=3)
    assert set(cases).isdisjoint(chosen(OPERATORS["Gemm"], "float32", seed=4))
    small, long, *_ = (case.op.multiplications(*case.shapes) for case in cases)
    assert long > 20 * small


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "corpus"
    left = export(corpus(), folder, ["Conv", "Gemm", "Softmax", "Dropout", "Concat"])
    assert {name.partition("-")[0] for name in left} == {"Dropout"}
    assert len(list(folder.iterdir())) == 5 * sum(COUNTS.values()) - len(left) == 48
    return folder


def tensor(path: Path) -> np.ndarray:
    return numpy_helper.to_array(onnx.load_tensor(path))


def tensors(folder: Path, name: str) -> list[np.ndarray]:
    count = len(list((folder / DATA).glob(f"{name}_[0-9].pb")))
    return [tensor(folder / DATA / f"{name}_{k}.pb") for k in range(count)]


def test_onnx_finds_the_cases(exported: Path) -> None:
    found = {case.name: case for case in load_model_tests(str(exported.parent), exported.name)}
    assert set(found) == {path.name for path in exported.iterdir()}
    model = onnx.load(Path(found["Conv-bfloat16-1"].model_dir) / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    about = {entry.key: entry.value for entry in model.metadata_props}
    assert about["corpus_hash"] == corpus().hash
    assert about["data"] == corpus().data["Conv-bfloat16-1"]


def test_a_runtime_is_judged_by_what_is_exported(exported: Path) -> None:
    onnxruntime.set_default_logger_severity(4)
    judged = 0
    for name in ("Conv", "Gemm", "Softmax"):
        for folder in exported.glob(f"{name}-float32-[01]"):
            session = onnxruntime.InferenceSession(folder / "model.onnx")
            given = {f"input_{k}": x for k, x in enumerate(tensors(folder, "input"))}
            wanted, bars = tensors(folder, "output"), tensors(folder, "bar")
            for got, want, bar in zip(session.run(None, given), wanted, bars, strict=True):
                assert (got.dtype, got.shape) == (want.dtype, want.shape)
                error = np.abs(got.astype(np.float64) - want)
                assert np.all(error <= bar)
                assert np.any(np.abs(want.astype(np.float64)) > bar)  # zeros are not right
                judged += 1
    assert judged == 6


def test_gradients_are_exported_too(exported: Path) -> None:
    problem = next(p for p in corpus().problems if p.name == "Conv-float32-0")
    folder = exported / problem.name
    inputs = tensors(folder, "input")
    found = problem.case.op.vjp(double(tensors(folder, "upstream")), double(inputs))
    wanted, bars = tensors(folder, "gradient"), tensors(folder, "gradient_bar")
    assert len(wanted) == len(bars) == len(inputs)
    for got, want, bar in zip(found, wanted, bars, strict=False):
        assert np.all(np.abs(got - want) <= bar)
        assert np.any(np.abs(got) > bar)


def test_outputs_that_onnx_forbids_beside_an_input_are_left_out(tmp_path: Path) -> None:
    """Attention with lengths of keys is not asked for present_key and present_value."""
    assert export(corpus(), tmp_path, ["Attention"]) == {}
    padded = [p for p in corpus().problems if p.case.op.name == "Attention" and _lengths(p.case)]
    assert len(padded) == 3
    for problem in padded:
        folder, op = tmp_path / problem.name, problem.case.op
        graph = onnx.load(folder / "model.onnx").graph
        assert list(graph.node[0].output) == ["output_0", "", "", "output_1"]
        assert [info.name for info in graph.output] == ["output_0", "output_1"]
        inputs = double(problem.case.arrays())
        outputs = op(*inputs)
        dy, dscores = double(tensors(folder, "upstream"))
        gradients = op.vjp((dy, None, None, dscores), inputs)
        for found, name, bars in (
            ((outputs[0], outputs[3]), "output", "bar"),
            (gradients, "gradient", "gradient_bar"),
        ):
            there = [y for y in found if y is not None]
            sides = there, tensors(folder, name), tensors(folder, bars)
            for got, want, bar in zip(*sides, strict=True):
                assert np.all(np.abs(got - want.astype(np.float64)) <= bar)
                assert np.any(np.abs(got) > bar)
    (present,) = (p for p in corpus().problems if p.name == "Attention-float32-0")
    assert len(tensors(tmp_path / present.name, "output")) == 4


def _lengths(case: Case) -> bool:
    return len(case.inputs) > 6 and case.inputs[6] is not None


def test_the_command_says_what_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["corpus"]) == 0
    problems = corpus().problems
    count = len({p.case.op.name for p in problems})
    said = (
        f"corpus {corpus().version} ({corpus().hash}): {len(problems)} cases of {count} operators"
    )
    assert said in capsys.readouterr().out


def test_the_command_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["corpus", "export", str(tmp_path), "--operator=Tanh,Dropout"]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith(f"12 cases of corpus {corpus().version} ({corpus().hash})")
    assert len(others) == 12
    assert all(line.startswith("left out: Dropout-") for line in others)
    assert (tmp_path / "Tanh-float16-2" / DATA / "bar_0.pb").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["export", "FOLDER", "--operator=Cnov"], "no operator 'Cnov' in it: did you mean Conv?"),
        (["export", "FILE"], "Not a directory"),
        (["make", "FILE"], "is not a corpus"),
        (["make", "FOLDER"], "Is a directory"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no corpus")
    places = {"FOLDER": str(tmp_path), "FILE": str(tmp_path / "file")}
    assert main(["corpus", *(places.get(a, a) for a in arguments)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("d5test corpus: ")
    assert said in line


def test_make_adds_and_then_has_nothing_to_add(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "corpus.json"
    path.write_text(without("Tanh").text())
    assert main(["corpus", "make", str(path)]) == 0
    number = corpus().version + 1
    first, then = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{path}: corpus {number} (")
    assert then.endswith(f'{number}: "{read(path).hash}",')
    made = path.read_bytes()
    assert read(path).version == number
    assert main(["corpus", "make", str(path)]) == 0
    assert f"nothing to add to corpus {number}" in capsys.readouterr().out
    assert path.read_bytes() == made
