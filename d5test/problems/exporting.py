"""The corpus as ONNX test data: what the node tests of ONNX have, and the bar of each element.

    FOLDER/Conv-float32-0/model.onnx
    FOLDER/Conv-float32-0/test_data_set_0/input_0.pb     the graph's inputs, in order
                                          output_0.pb    expected, in the output's dtype
                                          bar_0.pb       |got - output| <= bar is right; float64
                                          upstream_0.pb  of output 0
                                          gradient_0.pb  expected, of input 0
                                          gradient_bar_0.pb

A graph has no output that ONNX forbids beside one of its inputs; the files are numbered as its
outputs are. An element with an infinite bar is not judged. In 16 bits the bars are those of class
P, which is what most frameworks compute in. An output without upstream gradient has none, nor has
an input without gradient; a case that gives one input twice has no gradients.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from d5test.case import Array, Case, dtype_of
from d5test.files import replace
from d5test.numerics.arithmetic import Arithmetic, classes
from d5test.numerics.bounds import Bound, Bounds, forward_bounds, gradient_bounds
from d5test.problems.corpus import Corpus
from d5test.problems.problem import Problem
from d5test.reference.node import to_node

if TYPE_CHECKING:
    import onnx

CLASS = "P"
"""The class of arithmetic that a backend is allowed unless it says otherwise."""


class Refused(ValueError):
    """ONNX says in one line why a model is none."""


def export(corpus: Corpus, folder: Path, operators: Container[str]) -> dict[str, str]:
    """Write a folder for each case of these operators; why a case is left out, by its name."""
    about = {"corpus": str(corpus.version), "corpus_hash": corpus.hash}
    left: dict[str, str] = {}
    for problem in corpus.problems:
        if problem.case.op.name not in operators:
            continue
        if reason := inexpressible(problem.case):
            left[problem.name] = reason
            continue
        found = dict(tensors(problem.case))
        try:
            made = model(problem, found, {**about, "data": corpus.data[problem.name]})
        except Refused as refused:
            left[problem.name] = f"onnx: {refused}"
            continue
        where = folder / problem.name
        data = where / "test_data_set_0"
        data.mkdir(parents=True, exist_ok=True)
        replace(where / "model.onnx", made.SerializeToString())
        for name, array in found.items():
            replace(data / f"{name}.pb", _proto(array, name))
    return left


def inexpressible(case: Case) -> str:
    """Why ONNX has no node for what a case means; empty if it has."""
    if case.op.name == "Dropout" and len(case.inputs) > 2:
        return "ONNX's Dropout draws its mask, and is not given one"
    if case.dtype == "float64" and case.op.attributes.get("stash_type") == 1:
        return "by stash_type 1, ONNX has the statistics in float32"
    return ""


def tensors(case: Case) -> Iterator[tuple[str, Array]]:
    """Every tensor of a case by name."""
    arrays = case.arrays()
    arithmetic = allowed(case.dtype)
    given = positions(case)
    outputs = forward_bounds(case.op, arrays, arithmetic)
    forbidden = apart(case)
    named = [k for k in range(len(outputs)) if k not in forbidden]
    yield from _numbered("input", (arrays[i] for i in given))
    stored = [_stored(case, outputs[k], k) for k in named]
    yield from _numbered("output", stored)
    yield from _numbered("bar", _bars(tuple(outputs[k] for k in named), stored))
    twice = any(t is not None and t.same_as is not None for t in case.inputs)
    if not case.op.differentiable or twice:
        return
    drawn = case.upstream(tuple(np.zeros(b.value.shape) for b in outputs if b is not None))
    grads = tuple(None if k in forbidden else dy for k, dy in enumerate(drawn))
    yield from _numbered("upstream", (grads[k] for k in named))
    found = gradient_bounds(case.op, arrays, grads, arithmetic)
    bounds = tuple(found[i] if i in case.wanted else None for i in given)
    expected = [None if b is None else _stored(case, b) for b in bounds]
    yield from _numbered("gradient", expected)
    yield from _numbered("gradient_bar", _bars(bounds, expected))


def allowed(dtype: str) -> Arithmetic:
    """The arithmetic whose bars are written."""
    every = classes(dtype)
    return next((a for a in every if a.name == CLASS), every[-1])


def positions(case: Case) -> list[int]:
    """Which inputs the graph has: not those left out, and each tensor once."""
    return [i for i, t in enumerate(case.inputs) if t is not None and t.same_as is None]


def apart(case: Case) -> set[int]:
    """Outputs that a node with the case's inputs does not name, as the operator's class says."""
    given = {i for i, tensor in enumerate(case.inputs) if tensor is not None}
    return {k for i, outputs in case.op.apart.items() if i in given for k in outputs}


def model(problem: Problem, found: dict[str, Array], about: dict[str, str]) -> onnx.ModelProto:
    """A model of one node, of the first operator set that has all that the case needs."""
    from onnx import defs, helper

    case = problem.case
    place = {i: f"input_{k}" for k, i in enumerate(positions(case))}
    names = [
        None if t is None else place[i if t.same_as is None else t.same_as]
        for i, t in enumerate(case.inputs)
    ]
    outputs = [name for name in found if name.startswith("output_")]
    forbidden, left = apart(case), iter(outputs)
    count = len(outputs) + len(forbidden)
    produced = [None if k in forbidden else next(left) for k in range(count)]
    node = to_node(case.op, names, produced, problem.name)
    given, made_of = ([_info(n, found[n]) for n in side] for side in (place.values(), outputs))
    graph = helper.make_graph([node], problem.name, given, made_of)
    newest = defs.get_schema(case.op.name).since_version
    why = ""
    for version in dict.fromkeys((min(case.op.since, newest), newest)):
        opsets = [helper.make_opsetid(case.op.domain, version)]
        made = helper.make_model(
            graph,
            opset_imports=opsets,
            ir_version=helper.find_min_ir_version_for(opsets),
            producer_name="d5test",
        )
        helper.set_model_props(made, about)
        why = _objection(made)
        if not why:
            return made
    raise Refused(why)


def _objection(made: onnx.ModelProto) -> str:
    """What ONNX says against a model; empty if nothing."""
    from onnx.checker import ValidationError, check_model
    from onnx.shape_inference import InferenceError

    try:
        check_model(made, full_check=True)
    except (ValidationError, InferenceError) as refused:
        return str(refused).strip().rpartition("] ")[2]
    return ""


def _stored(case: Case, bound: Bound | None, output: int | None = None) -> Array:
    """What is expected, rounded to the dtype that it has in ONNX."""
    assert bound is not None
    if bound.storage is None:
        return bound.value
    wide = output in case.op.stashed_outputs
    with np.errstate(over="ignore"):
        return np.asarray(bound.value.astype(dtype_of("float32" if wide else case.dtype)))


def _bars(bounds: Bounds, stored: Iterable[Array | None]) -> Iterator[Array | None]:
    """Bars around what is stored: the value itself is that far from it."""
    for bound, array in zip(bounds, stored, strict=True):
        if bound is None or array is None:
            yield None
            continue
        with np.errstate(invalid="ignore"):
            bar = bound.bar + np.abs(bound.exact - array.astype(np.float64))
        yield np.where(np.isnan(bar), np.inf, bar)


def _numbered(name: str, arrays: Iterable[Array | None]) -> Iterator[tuple[str, Array]]:
    """The arrays that are there, by name and place."""
    return ((f"{name}_{k}", array) for k, array in enumerate(arrays) if array is not None)


def _info(name: str, array: Array) -> onnx.ValueInfoProto:
    from onnx import helper

    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape)


def _proto(array: Array, name: str) -> bytes:
    from onnx import numpy_helper

    made = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
    return bytes(made.SerializeToString())
