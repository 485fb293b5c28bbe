"""What reads a stranger's file, with content that it reads and what it may refuse with.

Whatever else it raises is a fault, and so is a verdict that a value changed which no clock gives.
"""

import base64
import gzip
import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, time
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from d5test.case import Case, Tensor
from d5test.client import registry
from d5test.client.messages import UnknownBackend, typed
from d5test.client.process import ANSWERS, HELLOS, require
from d5test.compare import Unreadable, compare, read, read_sides
from d5test.compare.reading import Run
from d5test.gate import accepted
from d5test.networks.external import array
from d5test.networks.network import Network
from d5test.problems import corpus
from d5test.reference.operators import OPERATORS
from d5test.report import Report, page, verify
from d5test.report.page import DATA
from d5test.reproducer import mark
from d5test.training import datasets
from d5test.training.history import History
from d5test.training.session import Snapshot
from d5test.training.trainer import Checkpoint, ResumeFault
from d5test.worker import wire
from tests.compare.files import benchmark, name, plain, write
from tests.compare.files import sides as two_sides
from tests.fuzz.mutation import (
    NUMBERS,
    Mutator,
    any_of,
    by_bytes,
    by_gzip,
    by_json,
    by_members,
    by_message,
    by_pickle,
    places,
)

EMPTY = Case(OPERATORS["Relu"](), (Tensor((2, 3), "float32", ("normal",)),), 0)


@dataclass(frozen=True)
class Reader:
    """A target.

    seeds    contents that are read, given an empty folder
    read     reads content, in a folder of its own that stays from one execution to the next
    mutate   makes other content of content
    refuses  what it raises of content that it does not take, in one line
    """

    seeds: Callable[[Path], Sequence[bytes]]
    read: Callable[[bytes, Path], object]
    mutate: Mutator
    refuses: tuple[type[Exception], ...]


def execute(reader: Reader, content: bytes, folder: Path) -> None:
    """Read content. Raises what is a fault."""
    try:
        reader.read(content, folder)
    except reader.refuses as error:
        text = str(error)
        if not text or ("\n" in text and not isinstance(error, UnknownBackend)):
            raise AssertionError(f"not one line: {text!r}") from error
        if len(text) > 4000:
            raise AssertionError(f"{len(text)} characters") from error


def benchmarks(folder: Path) -> list[bytes]:
    old, new = two_sides(folder, runs=1, count=2)
    del old, new
    rows = {"name": "rows", "unit": "1", "better": "higher", "gate": "noise", "values": [3, 4]}
    paced = {"work": "w", "paces": [5e-5, 5e-5], "times": [20.0, 20.1]}
    more = benchmark(
        name(2), 1e-3, control=[1e-3], control_resident=[10**8], paced=paced, kernels=["mm", "sum"]
    )
    more["extra_info"] |= {"metrics": [rows], "communication": {"messages": 3, "bytes": 5}}
    write(folder / "more.json", [more, plain("sort", 1e-3)], {"gone": "skipped: why"})
    return [path.read_bytes() for path in sorted(folder.glob("*.json"))]


def read_benchmarks(content: bytes, folder: Path) -> None:
    good, path = folder / "good" / "run.json", folder / "fuzzed.json"
    if not good.exists():
        good.parent.mkdir()
        write(good, [benchmark(name(b), 1.1e-3, kernels=["mm"]) for b in range(3)])
    path.write_bytes(content)
    old, new = read_sides([str(good), str(path)], 8)
    page(Report([], new))
    report = Report(old, new)
    text = page(report)
    assert verify(text).differences == ()


PLANTED = 1.3


def versions(folder: Path) -> list[bytes]:
    """The second run of the new version, in which the first of two benchmarks is slower."""
    for side, factor in (("old", 1.0), ("new", PLANTED)):
        for k, noise in enumerate((1.0, 1.002, 0.999)):
            paced = {"work": "w", "paces": [5e-5], "times": [20 * noise]}
            found = [
                benchmark(
                    name(0), 1e-3 * factor * noise, shapes=[[3, 5]], control=[1e-3 * factor]
                ),
                benchmark(name(1), 1e-3 * noise, shapes=[[5, 3]], paced=paced),
            ]
            write(folder / f"{side}{k}.json", found)
    return [(folder / "new1.json").read_bytes()]


STATISTICS = ("stats", "control", "paced", "judgement", "memory", "ratio_resolution", "loops",
              "preempted_rounds", "seconds", "cpu", "preempted")  # fmt: skip


def by_number(content: bytes, draw: Random) -> bytes:
    """A number of the second benchmark that statistics read is one that nothing has measured."""
    run = json.loads(content)
    entry = run["benchmarks"][1]
    record = entry["extra_info"]["d5test"]
    parts = [{"stats": entry["stats"]}, {k: v for k, v in record.items() if k in STATISTICS}]
    found = [
        (holder, key)
        for part in parts
        for holder, key in places(part)
        if isinstance(holder[key], int | float) and holder not in parts
    ] + [(record, k) for k in STATISTICS if isinstance(record.get(k), int | float)]
    holder, key = draw.choice(found)
    drawn = draw.choice(NUMBERS)
    if isinstance(holder[key], bool):
        return content
    holder[key] = -drawn if draw.random() < 0.2 else drawn
    return json.dumps(run).encode()


def keeps_its_verdict(content: bytes, folder: Path) -> None:
    if not (folder / "old0.json").exists():
        versions(folder)
    (folder / "new1.json").write_bytes(content)
    old, new = read_sides([str(folder / "old*.json"), str(folder / "new*.json")])
    found = compare(old, new)
    if _disturbed(new):
        assert found.verdict in ("regressed", "unsure"), found.verdict
        return
    assert found.verdict == "regressed", found.verdict
    worse = {
        (d.values.benchmark, d.values.metric.name) for d in found.decisions if d.verdict == "worse"
    }
    assert (name(0), "time") in worse, worse


def _disturbed(runs: Sequence[Run]) -> bool:
    """Whether the second benchmark was, by clock and pace, another one in some run.

    That is what a machine gives on which something else began: nothing can be told of it.
    """
    times = [run.entries[name(1)].samples["time"].values[0] for run in runs]
    return max(times) > 2 * min(times)


def pages(folder: Path) -> list[bytes]:
    old, new = (read(side, 8) for side in two_sides(folder, runs=2, count=2, slower={0: 1.3}))
    return [page(Report(old, new)).encode(), page(Report([], new)).encode()]


def by_data(content: bytes, draw: Random) -> bytes:
    """The data of a page are others; its text is the same."""
    found = DATA.search(content.decode(errors="replace"))
    if found is None:
        return by_bytes(content, draw)
    try:
        packed = base64.b64decode(found[1])
    except ValueError:
        return by_bytes(content, draw)
    again = base64.b64encode(by_gzip(by_json)(packed, draw))
    return content[: found.start(1)] + again + content[found.end(1) :]


def read_page(content: bytes, folder: Path) -> None:
    verify(content.decode(errors="replace"))


ROW = b"""[[accepted]]
benchmark = "b1"
metric = "time"
up_to = 0.30
reason = "the new kernel is deterministic"
owner = "me"
expires = 2031-03-31
"""


VALUES = (
    "9" * 5000, "nan", "-inf", "0x0", '""', "[]", "{}", "[[[1]]]", "{x = {}}", "true", "1e400",
    "2031-03-31T00:00:00Z", "00:00:00", "'''\n'''", "-1", "1", "0.999",
)  # fmt: skip


def by_toml(content: bytes, draw: Random) -> bytes:
    """A value of a row is another one."""
    try:
        found = tomllib.loads(content.decode())
        rows = [row for row in found["accepted"] if isinstance(row, dict)]
    except (ValueError, KeyError, TypeError, RecursionError):
        return by_bytes(content, draw)
    if not rows:
        return by_bytes(content, draw)
    row = draw.choice(rows)
    drawn = draw.choice(VALUES)
    key = draw.choice([*row, "more"])
    words = {k: _toml(v) for k, v in row.items()}
    words[key] = drawn
    if draw.random() < 0.2:
        del words[draw.choice(list(words))]
    return ("[[accepted]]\n" + "\n".join(f"{k} = {v}" for k, v in words.items())).encode()


def _toml(value: Any) -> str:
    """A value as TOML writes it; a date within a list becomes its text."""
    return value.isoformat() if isinstance(value, date | time) else json.dumps(value, default=str)


def into_file(reads: Callable[[Path], object], suffix: str) -> Callable[[bytes, Path], object]:
    def run(content: bytes, folder: Path) -> object:
        path = folder / f"fuzzed{suffix}"
        path.write_bytes(content)
        return reads(path)

    return run


def idx_files(folder: Path) -> list[bytes]:
    head = b"\0\0\x08\x03" + np.array([3, 2, 2], ">u4").tobytes() + bytes(range(12))
    wide = b"\0\0\x0d\x01" + np.array([2], ">u4").tobytes() + bytes(8)
    return [head, wide, gzip.compress(head, mtime=0), gzip.compress(wide, mtime=0)]


def checkpoints(folder: Path) -> list[bytes]:
    history = History([0.5, 0.25], [0.5], [0.75], [1.5], {"compute": 2.0}, 64)
    parameters = {"w": np.ones((2, 3), np.float32), "b": np.zeros(3)}
    slots = {"w": (np.ones((2, 3), np.float32),), "b": ()}
    path = folder / "run.npz"
    Checkpoint(
        1, 2, 40, Snapshot(2, parameters, slots), history, {"optimizer": "SGD"}, ("a", "b")
    ).save(path)
    return [path.read_bytes()]


def models(folder: Path) -> list[bytes]:
    weights = numpy_helper.from_array(np.ones((3, 5), np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "fc"),
        helper.make_node("Constant", [], ["two"], value_float=2.0),
        helper.make_node("Relu", ["h"], ["r"], "act"),
        helper.make_node("Softmax", ["r"], ["y"], "out", axis=-1),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])
    graph = helper.make_graph(nodes, "net", [given], [made], [weights])
    found = []
    for version in (13, 18):
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
        found.append(model.SerializeToString())
    onnx.save_model(model, str(folder / "there.onnx"), save_as_external_data=True,
                    location="weights.bin", size_threshold=0)  # fmt: skip
    return [*found, looping().SerializeToString(), (folder / "there.onnx").read_bytes()]


def looping() -> onnx.ModelProto:
    """A loop whose body has a branch, reads of the graph around it and makes a sequence."""
    node, info = helper.make_node, helper.make_tensor_value_info
    small = helper.make_graph([node("Identity", ["v"], ["s"])], "small", [],
                              [info("s", TensorProto.FLOAT, [3])])  # fmt: skip
    large = helper.make_graph([node("Add", ["v", "x"], ["l"])], "large", [],
                              [info("l", TensorProto.FLOAT, [3])])  # fmt: skip
    body = helper.make_graph(
        [node("If", ["go"], ["w"], then_branch=large, else_branch=small),
         node("SequenceInsert", ["seen", "w"], ["more"]), node("Identity", ["go"], ["on"])],
        "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []),
         info("v", TensorProto.FLOAT, [3]),
         helper.make_tensor_sequence_value_info("seen", TensorProto.FLOAT, None)],
        [info("on", TensorProto.BOOL, []), info("w", TensorProto.FLOAT, [3]),
         helper.make_tensor_sequence_value_info("more", TensorProto.FLOAT, None)],
    )  # fmt: skip
    graph = helper.make_graph(
        [node("SequenceEmpty", [], ["none"], dtype=1),
         node("Loop", ["n", "", "x", "none"], ["y", "ys"], "loop", body=body),
         node("ConcatFromSequence", ["ys"], ["z"], axis=0)],
        "net", [info("n", TensorProto.INT64, []), info("x", TensorProto.FLOAT, [3])],
        [info("y", TensorProto.FLOAT, [3]), info("z", TensorProto.FLOAT, ["k"])],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def read_model(content: bytes, folder: Path) -> None:
    (folder / "weights.bin").write_bytes(bytes(60))
    into_file(Network, ".onnx")(content, folder)


def tensors(folder: Path) -> list[bytes]:
    given = (
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.array([1, 2]),
        np.array(["a"], object),
    )
    return [bytes(numpy_helper.from_array(x, "x").SerializeToString()) for x in given]


def messages(folder: Path) -> list[bytes]:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    every = (
        ("ready",), ("failed", "ImportError", "no", ""),
        ("raised", "ValueError", "", "", "call", ""),
        ("ok", [((x, None), [x], True)]), ("ok", {"rows": {}, "threads": 2}),
    )  # fmt: skip
    return [wire.dumps(message) for message in every]


def read_message(content: bytes, folder: Path) -> None:
    message = wire.loads(content, typed)
    require(message, {**ANSWERS, **HELLOS})


def corpora(folder: Path) -> list[bytes]:
    names = {EMPTY.op.name: corpus.digest(EMPTY)}
    problem = corpus.Problem("Relu-float32-0", EMPTY, "corpus 1")
    made = corpus.Corpus(1, 0, (problem,), {problem.name: names["Relu"]})
    return [made.text().encode()]


def read_name(content: bytes, folder: Path) -> None:
    text = content.decode(errors="surrogateescape")
    if "\0" not in text:  # no argument has one
        registry.resolve(text)


def reproducers(folder: Path) -> list[bytes]:
    return [f'{mark.head("/usr/bin/python3")}\n"""Gone.\n\n{mark.STATUSES}\n"""\nx = 1\n'.encode()]


def batches(folder: Path) -> list[bytes]:
    return [bytes([3]) + bytes(3072), (bytes([9]) + bytes(3072)) * 2]


def in_folder(place: str) -> Callable[[bytes, Path], object]:
    def run(content: bytes, folder: Path) -> object:
        (folder / place).write_bytes(content)
        (folder / "x.bin").write_bytes(b"x")
        return datasets.read(folder / "x.bin")

    return run


READERS: dict[str, Reader] = {
    "benchmarks": Reader(
        benchmarks, read_benchmarks, any_of(by_json, by_json, by_bytes), (Unreadable,)
    ),
    "verdict": Reader(versions, keeps_its_verdict, by_number, (Unreadable,)),
    "page": Reader(pages, read_page, any_of(by_data, by_data, by_bytes), (Unreadable,)),
    "accepted": Reader(
        lambda folder: [ROW], into_file(accepted.read, ".toml"), any_of(by_toml, by_bytes),
        (accepted.Unacceptable,),
    ),
    "idx": Reader(
        idx_files, into_file(datasets.idx, ".gz"), any_of(by_gzip(by_bytes), by_bytes),
        (datasets.BadFile,),
    ),
    "cifar": Reader(
        batches, into_file(lambda path: datasets.cifar(path.parent, [path.name]), ".bin"),
        by_bytes, (datasets.BadFile,),
    ),
    "sums": Reader(
        lambda folder: [f"{sha256(b'x').hexdigest()}  x.bin\n".encode()],
        in_folder(datasets.SUMS), by_bytes, (datasets.BadFile,),
    ),
    "checkpoint": Reader(
        checkpoints, into_file(Checkpoint.load, ".npz"),
        any_of(by_members(any_of(by_json, by_bytes)), by_members(by_bytes), by_bytes),
        (ResumeFault,),
    ),
    "model": Reader(
        models, read_model,
        any_of(by_message(onnx.ModelProto), by_message(onnx.ModelProto), by_bytes),
        (ValueError, OSError),
    ),
    "tensor": Reader(
        tensors, into_file(array, ".pb"), any_of(by_message(TensorProto), by_bytes), (ValueError,)
    ),
    "message": Reader(messages, read_message, any_of(by_pickle, by_bytes), (wire.Garbled,)),
    "corpus": Reader(
        corpora, into_file(corpus.read, ".json"), any_of(by_json, by_bytes), (corpus.Damaged,)
    ),
    "name": Reader(
        lambda folder: [b"numpy", b"./mine.py:Mine@~me/bin/python", b"a.b:C", b"~no/x.py:A"],
        read_name, by_bytes, (UnknownBackend,),
    ),
    "reproducer": Reader(
        reproducers, into_file(mark.interpreter_of, ".py"), by_bytes, (mark.NoReproducer,)
    ),
}  # fmt: skip


def seeds_of(reader: Reader) -> list[bytes]:
    """What its target begins with."""
    with TemporaryDirectory() as folder:
        return list(reader.seeds(Path(folder)))


def mutations(reader: Reader, seed: int, count: int) -> list[bytes]:
    """Content that is made of the seeds by one change after the other; the same each time."""
    draw, pool = Random(seed), seeds_of(reader)
    first, made = len(pool), list[bytes]()
    for _ in range(count):
        content = reader.mutate(draw.choice(pool), draw)
        made.append(content)
        if len(content) < 1 << 20 and draw.random() < 0.3:  # changes upon changes
            pool = [*pool[:first], *pool[first:][-30:], content]
    return made
