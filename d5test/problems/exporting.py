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

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from d5test.case import Array, Case, dtype_of
from d5test.files import replace
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import Bound, forward_bounds, gradient_bounds
from d5test.problems import Problem
from d5test.problems.corpus import Corpus
from d5test.reference.node import to_node

if TYPE_CHECKING:
    import onnx

CLASS = "P"
"""The class of arithmetic that a backend is allowed unless it says otherwise."""


class Refused(ValueError):
    """ONNX says in one line why a model is none."""


def export(corpus: Corpus, folder: Path, operators: Container[str]) -> dict[str, str]:
    """Write a folder for each case of these operators; why a case is left out, by its name."""
    from onnx import numpy_helper

    about = {"corpus": str(corpus.version), "corpus_hash": corpus.hash}
    left: dict[str, str] = {}
    for problem in corpus.problems:
        if problem.case.op.name not in operators:
            continue
        if reason := inexpressible(problem.case):
            left[problem.name] = reason
            continue
        arrays = dict(tensors(problem.case))
        try:
            proto = model(problem, arrays, {**about, "data": corpus.data[problem.name]})
        except Refused as refused:
            left[problem.name] = f"onnx: {refused}"
            continue
        data = folder / problem.name / "test_data_set_0"
        data.mkdir(parents=True, exist_ok=True)
        replace(data.with_name("model.onnx"), proto.SerializeToString())
        for name, array in arrays.items():
            ordered = np.ascontiguousarray(array).reshape(array.shape)
            tensor = numpy_helper.from_array(ordered, name)
            replace(data / f"{name}.pb", tensor.SerializeToString())
    return left


def inexpressible(case: Case) -> str:
    """Why ONNX has no node for what a case means; empty if it has."""
    if case.op.name == "Dropout" and case.shapes[2:3] not in ((), ((),)):
        return "ONNX's Dropout draws its mask, and is not given one"
    if case.dtype == "float64" and case.op.attributes.get("stash_type") == 1:
        return "by stash_type 1, ONNX has the statistics in float32"
    return ""


def tensors(case: Case) -> Iterator[tuple[str, Array]]:
    """Every tensor of a case by name."""
    arrays, places = case.arrays(), positions(case)
    every = classes(case.dtype)
    arithmetic = next((a for a in every if a.name == CLASS), every[-1])
    yield from _numbered("input", (arrays[i] for i in places))
    outputs = forward_bounds(case.op, arrays, arithmetic)
    forbidden = apart(case)
    named = [k for k in range(len(outputs)) if k not in forbidden]
    names = [case.dtype if b is None or b.storage is None else b.storage.name for b in outputs]
    wide = ["float32" if k in case.op.stashed_outputs else names[k] for k in named]
    yield from _expected("output", "bar", [outputs[k] for k in named], wide)
    twice = any(t is not None and t.same_as is not None for t in case.inputs)
    if not case.op.differentiable or twice:
        return
    drawn = case.upstream(
        tuple(
            np.zeros(b.value.shape, dtype_of(name) if b.storage else b.value.dtype)
            for b, name in zip(outputs, names, strict=True)
            if b is not None
        )
    )
    if not case.wanted or all(dy is None for dy in drawn):
        return
    grads = tuple(None if k in forbidden else dy for k, dy in enumerate(drawn))
    yield from _numbered("upstream", (grads[k] for k in named))
    gradients = gradient_bounds(case.op, arrays, grads, arithmetic)
    wanted = [gradients[i] if i in case.wanted else None for i in places]
    yield from _expected("gradient", "gradient_bar", wanted, repeat(case.dtype))


def _numbered(name: str, arrays: Iterable[Array | None]) -> Iterator[tuple[str, Array]]:
    """The arrays that are there, by name and place."""
    return ((f"{name}_{k}", array) for k, array in enumerate(arrays) if array is not None)


def _expected(
    name: str, bar_name: str, bounds: Sequence[Bound | None], dtypes: Iterable[str]
) -> Iterator[tuple[str, Array]]:
    """What is expected, in the dtypes that ONNX has it in, and bars around it."""
    for k, (bound, dtype) in enumerate(zip(bounds, dtypes, strict=False)):
        if bound is None:
            continue
        stored = bound.value
        if bound.storage is not None:
            with np.errstate(over="ignore"):
                stored = np.asarray(stored.astype(dtype_of(dtype)))
        yield f"{name}_{k}", stored
        with np.errstate(invalid="ignore"):
            # the value itself is that far from what is stored
            bar = bound.bar + np.abs(bound.exact - stored.astype(np.float64))
        yield f"{bar_name}_{k}", np.where(np.isnan(bar), np.inf, bar)


def positions(case: Case) -> list[int]:
    """Which inputs the graph has: not those left out, and each tensor once."""
    return [i for i, t in enumerate(case.inputs) if t is not None and t.same_as is None]


def apart(case: Case) -> set[int]:
    """Outputs that a node with the case's inputs does not name, as the operator's class says."""
    present = {i for i, tensor in enumerate(case.inputs) if tensor is not None}
    return {k for i, outputs in case.op.apart.items() if i in present for k in outputs}


def model(problem: Problem, arrays: dict[str, Array], about: dict[str, str]) -> onnx.ModelProto:
    """A model of one node, of the first operator set that has all that the case needs."""
    from onnx import defs, helper
    from onnx.checker import ValidationError, check_model
    from onnx.shape_inference import InferenceError

    case = problem.case
    inputs = {i: f"input_{k}" for k, i in enumerate(positions(case))}
    names = [
        None if t is None else inputs[i if t.same_as is None else t.same_as]
        for i, t in enumerate(case.inputs)
    ]
    outputs = [name for name in arrays if name.startswith("output_")]
    forbidden, left = apart(case), iter(outputs)
    count = len(outputs) + len(forbidden)
    produced = [None if k in forbidden else next(left) for k in range(count)]
    node = to_node(case.op, names, produced, problem.name)
    infos = {
        name: helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in arrays.items()
    }
    read, written = ([infos[name] for name in side] for side in (inputs.values(), outputs))
    graph = helper.make_graph([node], problem.name, read, written)
    domain, kind = case.op.node_type()
    newest = defs.get_schema(kind, domain=domain).since_version
    why = ""
    for version in dict.fromkeys((min(case.op.since, newest), newest)):
        opsets = [helper.make_opsetid(case.op.domain, version)]
        proto = helper.make_model(
            graph,
            opset_imports=opsets,
            ir_version=helper.find_min_ir_version_for(opsets),
            producer_name="d5test",
        )
        helper.set_model_props(proto, about)
        try:
            check_model(proto, full_check=True)
        except (ValidationError, InferenceError) as error:
            why = str(error).strip().rpartition("] ")[2]
        else:
            return proto
    raise Refused(why)
