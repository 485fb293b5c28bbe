"""The corpus: cases that never change, on which accuracy is compared from release to release.

Requirements: the file holds recipes and no numbers but literal ones; a hash of the bytes that each
recipe must make, on every machine and with every NumPy, stands beside it. An input's Philox key is
the case's seed and the input's position; an upstream gradient's is the seed and 1000 plus the
output's position.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from d5test.case import Array, Case, Tensor
from d5test.files import parsed
from d5test.numerics.bounds import double
from d5test.problems import Problem
from d5test.reference.operators import OPERATORS

FILE = Path(__file__).with_name("data") / "corpus.json"


class Damaged(ValueError):
    """A file that is no corpus, and why, in one line."""


@dataclass(frozen=True)
class Corpus:
    """Problems by operator and dtype.

    version  raised when cases are added; none that is there ever changes
    seed     from which the first version was made
    data     by the name of each problem, the hash of what its recipe must make
    """

    version: int = 0
    seed: int = 0
    problems: Sequence[Problem] = ()
    data: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def hash(self) -> str:
        """Of all that counts: the version and every case with the hash of its data."""
        return _hash([json.dumps([self.version, [*self.rows()]], sort_keys=True).encode()])

    def rows(self) -> Iterator[dict[str, Any]]:
        """The cases as they stand in the file."""
        for problem in self.problems:
            case = problem.case
            yield {
                "name": problem.name,
                "operator": case.op.name,
                "attributes": dict(case.op.attributes),
                "inputs": [None if t is None else _described(t) for t in case.inputs],
                "seed": case.seed,
                "data": self.data[problem.name],
            }

    def text(self) -> str:
        """The file: a line for each case."""
        head = {"version": self.version, "seed": self.seed, "hash": self.hash}
        lines = ",\n".join(json.dumps(row) for row in self.rows())
        return f'{json.dumps(head)[:-1]}, "cases": [\n{lines}\n]}}\n'


@cache
def corpus() -> Corpus:
    """The corpus that comes with d5test."""
    return read(FILE)


def read(path: Path) -> Corpus:
    """The corpus in a file. Raises `Damaged`, or `OSError` where there is no such file."""
    try:
        content = parsed(path.read_bytes())
        version, seed, rows = content["version"], content["seed"], content["cases"]
        problems = tuple(_problem(row, f"corpus {version}") for row in rows)
        corpus = Corpus(version, seed, problems, {row["name"]: row["data"] for row in rows})
        if corpus.hash != content["hash"]:
            raise Damaged(f"was changed: its hash is {corpus.hash}, not {content['hash']}")
    except KeyError as error:
        raise Damaged(f"has no {error}, or this d5test does not know it") from None
    except Damaged:
        raise
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise Damaged(f"is not a corpus: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise Damaged("is not a corpus: it is nested too deep") from None
    return corpus


def digest(case: Case) -> str:
    """A hash of the bytes of a case's inputs and upstream gradients, little-endian.

    The upstream gradients of float64 are rounded to float32 first: the normal distribution's
    inverse is a function of the machine's, which need not be correctly rounded.
    """
    arrays = case.arrays()
    with np.errstate(all="ignore"):
        outputs = case.op(*double(arrays))
    upstream = (
        y.astype(np.float32) if y is not None and y.dtype == np.float64 else y
        for y in case.upstream(outputs)
    )
    return _hash(_bytes(array) for array in (*arrays, *upstream))


def _bytes(array: Array | None) -> bytes:
    if array is None:
        return b"none"
    size = array.dtype.itemsize
    raw = np.ascontiguousarray(array).view(f"u{size}").astype(f"<u{size}")
    return f"{array.dtype.name} {array.shape} ".encode() + raw.tobytes()


def _hash(parts: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]  # 64 bits


def _described(tensor: Tensor) -> dict[str, Any]:
    """A recipe; `data` in place of `values` where the numbers stand there."""
    recipe: dict[str, Any] = {"dtype": tensor.dtype, "shape": tensor.shape}
    if tensor.data is not None:
        recipe["data"] = tensor.data
    else:
        recipe["values"] = tensor.values
    if tensor.same_as is not None:
        recipe["same_as"] = tensor.same_as
    return recipe


def _problem(row: Mapping[str, Any], source: str) -> Problem:
    operator = OPERATORS[row["operator"]](**_frozen(row["attributes"]))
    tensors = (None if recipe is None else _tensor(_frozen(recipe)) for recipe in row["inputs"])
    return Problem(row["name"], Case(operator, tuple(tensors), row["seed"]), source)


def _tensor(recipe: dict[str, Any]) -> Tensor:
    return Tensor(tuple(recipe.pop("shape")), recipe.pop("dtype"), **recipe)


def _frozen(value: Any) -> Any:
    """Lists as tuples."""
    if isinstance(value, dict):
        return {name: _frozen(entry) for name, entry in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
