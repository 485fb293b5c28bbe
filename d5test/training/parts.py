"""The parts of a recipe: which there are, and what may stand in them.

Requirements: a mistake is found before anything is trained, and is one line that says whose recipe
it is, what was given, what there is, and what was probably meant.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from d5test.client.client import WorkerClient
from d5test.metric import Metric
from d5test.names import BadName, resolve
from d5test.reference.optimizers import OPTIMIZERS
from d5test.training.datasets import DATASETS

FIXED_KEYS: Mapping[str, Any] = {
    "model": None, "model_kwargs": {}, "dataset": None, "dataset_kwargs": {},
    "train_sampler": None, "epochs": None, "seeds": (1,),
}  # fmt: skip
MUTABLE_KEYS: Mapping[str, Any] = {
    "batch_size": None, "backend": "torch", "executor_kwargs": {}, "optimizer": None,
    "optimizer_kwargs": {}, "optimizer_kind": "native",
}  # fmt: skip
"""The parts of a recipe, with their defaults; None: it has to be given."""
ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(FIXED_KEYS, "it is a fixed part"),
    **dict.fromkeys(MUTABLE_KEYS, "it is a mutable part"),
    "seed": "the seeds of a recipe stand in 'seeds'",
}
"""What is said of a name that has its place, but another one."""
KNOWN: Mapping[str, Mapping[str, Any]] = {
    "model": {}, "dataset": DATASETS, "train_sampler": {}, "optimizer": OPTIMIZERS,
}  # fmt: skip
"""The parts that are called, and those of ours that can be given by name (`d5test.names`)."""
COUNTS = ("epochs", "batch_size")
KINDS = ("native", "reference")
SECTIONS = ("FIXED", "MUTABLE", "METRICS")


class BadRecipe(ValueError):
    """A recipe that cannot be run as it is; the text says why."""


def complete(
    recipe: str, fixed: Mapping[str, Any], mutable: Mapping[str, Any], metrics: Any
) -> tuple[dict[str, Any], dict[str, Any], tuple[tuple[Any, ...], ...]]:
    """All parts with their defaults. Raises `BadRecipe`."""
    whole: dict[str, Any] = {}
    for where, given, keys in (("FIXED", fixed, FIXED_KEYS), ("MUTABLE", mutable, MUTABLE_KEYS)):
        if not isinstance(given, Mapping):
            raise BadRecipe(f"{recipe}: {where} is a dictionary, not {given!r}")
        for key in given:
            if key not in keys:
                other = ELSEWHERE.get(key) or _meant(key, keys)
                raise BadRecipe(f"{recipe}: {where} has no part {key!r}; {other}")
        made = {**keys, **given}
        missing = [key for key, value in made.items() if value is None]
        if missing:
            raise BadRecipe(f"{recipe}: {where} lacks {', '.join(missing)}")
        whole |= made
    _require_values(recipe, whole)
    made = {part: called(recipe, part, whole[part]) for part in KNOWN}
    require_call(recipe, "model", made["model"], whole["model_kwargs"], seed=1)
    require_call(recipe, "dataset", made["dataset"], whole["dataset_kwargs"])
    require_call(recipe, "train_sampler", made["train_sampler"], {}, 2, 1, seed=1)
    require_call(recipe, "optimizer", made["optimizer"], whole["optimizer_kwargs"])
    require_call(recipe, "executor", WorkerClient, whole["executor_kwargs"], whole["backend"])
    rows = tuple(metrics) if isinstance(metrics, Sequence) else (metrics,)
    if not all(_is_bounded(row) for row in rows):
        raise BadRecipe(f"{recipe}: METRICS has (metric, bound) or (metric, low, high)")
    return {key: whole[key] for key in FIXED_KEYS}, {key: whole[key] for key in MUTABLE_KEYS}, rows


def called(recipe: str, part: str, value: Any) -> Any:
    """What is called for a part: what stands there, or what its name stands for."""
    if not isinstance(value, str):
        return value
    what = "network" if part == "model" else part
    try:
        return resolve(what, value, KNOWN[part])
    except BadName as error:
        raise BadRecipe(f"{recipe}: {error}") from None


def require_sections(recipe: str, names: Iterable[str]) -> None:
    """Raise `BadRecipe` unless the names that a recipe's file defines have all its sections."""
    names = set(names)
    for section in SECTIONS:
        if section not in names:
            close = difflib.get_close_matches(section, names - set(SECTIONS), n=1)
            given = f"; it has {close[0]}: did you mean {section}?" if close else ""
            raise BadRecipe(
                f"{recipe}: there is no {section}{given}; a recipe has {', '.join(SECTIONS)}"
            )


def require_call(
    recipe: str,
    part: str,
    make: Any,
    keywords: Mapping[str, Any],
    /,
    *arguments: Any,
    **own: Any,
) -> None:
    """Raise `BadRecipe` unless a part can be called with the keywords of its `_kwargs`.

    `arguments` and `own` are what the recipe itself passes beside them.
    """
    if not callable(make):
        raise BadRecipe(f"{recipe}: {part} is a class or a function, not {make!r}")
    name, signature = getattr(make, "__qualname__", repr(make)), _signature(make)
    kinds = {p.kind for p in signature.parameters.values()}
    known = [
        p.name for p in signature.parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in own
    ]  # fmt: skip
    for key in keywords:
        if key not in known and (inspect.Parameter.VAR_KEYWORD not in kinds or key in own):
            other = ELSEWHERE["seed"] if key in own else _meant(key, known)
            raise BadRecipe(f"{recipe}: {part}_kwargs: {name} has no {key!r}; {other}")
    try:
        signature.bind(*arguments, **{**keywords, **own})
    except TypeError as error:
        raise BadRecipe(f"{recipe}: {part}: {name}: {error}") from None


def _signature(make: Callable[..., Any]) -> inspect.Signature:
    """What may be passed; anything, where that is not told."""
    try:
        return inspect.signature(make)
    except (TypeError, ValueError):
        return inspect.signature(lambda *arguments, **keywords: None)


def _require_values(recipe: str, whole: Mapping[str, Any]) -> None:
    for part in COUNTS:
        if not isinstance(whole[part], int) or whole[part] < 1:
            raise BadRecipe(f"{recipe}: {part} is a positive integer, not {whole[part]!r}")
    seeds = whole["seeds"]
    if not (isinstance(seeds, Sequence) and seeds and all(isinstance(s, int) for s in seeds)):
        raise BadRecipe(f"{recipe}: seeds is a list of integers, not {seeds!r}")
    for part in (part for part in whole if part.endswith("_kwargs")):
        if not isinstance(whole[part], Mapping):
            raise BadRecipe(f"{recipe}: {part} is a dictionary, not {whole[part]!r}")
    kind = whole["optimizer_kind"]
    if kind not in KINDS:
        raise BadRecipe(f"{recipe}: there is no optimizer_kind {kind!r}; {_meant(kind, KINDS)}")


def _is_bounded(row: Any) -> bool:
    return isinstance(row, Sequence) and len(row) in (2, 3) and isinstance(row[0], Metric)


def _meant(given: object, known: Iterable[str]) -> str:
    """What was probably meant, and all that there is."""
    known = list(known)
    close = difflib.get_close_matches(str(given), known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}known: {', '.join(known) or 'none'}"
