"""Recipes: fixed parts, mutable parts, and the metrics that count as success, run as one.

    FIXED = {"model": cifar, "model_kwargs": {"depth": 44}, "dataset": "cifar10",
             "train_sampler": ShuffleSampler, "epochs": 180, "seeds": (1,)}
    MUTABLE = {"batch_size": 128, "backend": "torch", "optimizer": Momentum,
               "optimizer_kwargs": {"lr": 0.1, "momentum": 0.9}}
    METRICS = [(TEST_ACCURACY, 0.93)]

    if __name__ == "__main__":
        run_recipe(FIXED, MUTABLE, METRICS) or exit(1)

Whoever runs a recipe may change the mutable parts: framework, optimizer, batch size. The fixed
parts make runs comparable; their hash stands in every result, and a recipe whose hash is
registered beside it (`FIXED.json`) is refused when they have changed. Every run that was made is
in the result file, those that failed and those of earlier days among them. A mistake is found
before anything is trained, and is one line that says whose recipe it is, what was given, what
there is, and what was probably meant.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from d5test.backends.base import Unsupported
from d5test.backends.updater import environment as environment_of
from d5test.client.client import WorkerClient
from d5test.client.messages import BackendFailed, Crashed, Hung, Raised, UnknownBackend
from d5test.files import parsed, replace
from d5test.metric import Metric
from d5test.names import BadName, from_file, resolve
from d5test.networks.network import Network
from d5test.record import describe_backend, environment
from d5test.reference.optimizers import OPTIMIZERS, Optimizer
from d5test.training.datasets import DATASETS, BadFile, Dataset, NoPackage
from d5test.training.history import (
    TEST_ACCURACY,
    THROUGHPUT,
    TIME_TO_ACCURACY,
    TRAINING_ACCURACY,
    TRAINING_TIME,
    History,
)
from d5test.training.samplers import SamplingFault, examine
from d5test.training.session import Session
from d5test.training.trainer import Listener, ProgressBar, Trainer

REGISTER = "FIXED.json"
RESULTS = Path(".d5test") / "recipes"
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


@dataclass(frozen=True)
class Recipe:
    """The parts of a recipe, complete. `metrics`: (metric, bound), or (metric, low, high)."""

    name: str
    fixed: Mapping[str, Any]
    mutable: Mapping[str, Any]
    metrics: Sequence[tuple[Any, ...]]

    @classmethod
    def of(
        cls, name: str, fixed: Mapping[str, Any], mutable: Mapping[str, Any], metrics: Any
    ) -> Recipe:
        """All parts with their defaults.

        Raises `BadRecipe` where a part is missing, unknown, or cannot be what it is.
        """
        whole: dict[str, Any] = {}
        sections = (("FIXED", fixed, FIXED_KEYS), ("MUTABLE", mutable, MUTABLE_KEYS))
        for where, section, keys in sections:
            if not isinstance(section, Mapping):
                raise BadRecipe(f"{name}: {where} is a dictionary, not {section!r}")
            for key in section:
                if key not in keys:
                    other = ELSEWHERE.get(key) or _meant(key, keys)
                    raise BadRecipe(f"{name}: {where} has no part {key!r}; {other}")
            whole |= {**keys, **section}
            missing = [key for key in keys if whole[key] is None]
            if missing:
                raise BadRecipe(f"{name}: {where} lacks {', '.join(missing)}")
        _require_values(name, whole)
        parts = {part: called(name, part, whole[part]) for part in KNOWN}
        require_call(name, "model", parts["model"], whole["model_kwargs"], seed=1)
        require_call(name, "dataset", parts["dataset"], whole["dataset_kwargs"])
        require_call(name, "train_sampler", parts["train_sampler"], {}, 2, 1, seed=1)
        require_call(name, "optimizer", parts["optimizer"], whole["optimizer_kwargs"])
        require_call(name, "executor", WorkerClient, whole["executor_kwargs"], whole["backend"])
        rows = tuple(metrics) if isinstance(metrics, Sequence) else (metrics,)
        if not all(
            isinstance(row, Sequence) and len(row) in (2, 3) and isinstance(row[0], Metric)
            for row in rows
        ):
            raise BadRecipe(f"{name}: METRICS has (metric, bound) or (metric, low, high)")
        fixed, mutable = ({key: whole[key] for key in keys} for _, _, keys in sections)
        return cls(name, fixed, mutable, rows)

    def network(self, seed: int) -> Network:
        """The network with the initial parameters of a seed: the same for every backend.

        Raises `BadRecipe` where the model refuses its arguments.
        """
        try:
            network: Network = self._called("model")(**self.fixed["model_kwargs"], seed=seed)
        except ValueError as error:
            raise BadRecipe(f"{self.name}: model: {error}") from None
        return network

    def dataset(self) -> Dataset:
        """The data. Raises `BadFile` and `NoPackage`."""
        dataset: Dataset = self._called("dataset")(**self.fixed["dataset_kwargs"])
        return dataset

    def optimizer(self) -> Optimizer:
        """The update rule, with its hyperparameters. Raises `BadRecipe` where it is none."""
        rule = self._called("optimizer")(**self.mutable["optimizer_kwargs"])
        if not isinstance(rule, Optimizer):
            kind = f"{Optimizer.__module__}.{Optimizer.__name__}"
            raise BadRecipe(f"{self.name}: optimizer: {rule!r} is not an update rule, a {kind}")
        return rule

    def sampler(self, samples: int, seed: int) -> Any:
        """The sampler of the training split."""
        make = self._called("train_sampler")
        try:
            return make(samples, self.mutable["batch_size"], seed=seed)
        except Exception as error:
            raise SamplingFault(f"{make.__name__}: {type(error).__name__}: {error}") from error

    def _called(self, part: str) -> Any:
        return called(self.name, part, {**self.fixed, **self.mutable}[part])

    def digest(self) -> str:
        """The SHA-256 of the fixed parts, and of the bounds: what makes runs comparable."""
        words = {key: _word(value) for key, value in self.fixed.items()}
        words["metrics"] = [[metric.name, *bounds] for metric, *bounds in self.metrics]
        return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()

    def require_registered(self, folder: Path) -> None:
        """Raise `BadRecipe` if the fixed parts are not those registered in the recipe's folder."""
        file = folder / REGISTER
        registered = json.loads(file.read_text()) if file.is_file() else {}
        wanted = registered.get(self.name)
        if wanted is not None and wanted != self.digest():
            raise BadRecipe(
                f"{self.name}: its fixed parts are not those of {file}: the hash is "
                f"{self.digest()}, not {wanted}. With other fixed parts it is another recipe"
            )


@dataclass(frozen=True)
class Run:
    """One run of a recipe, with one seed."""

    seed: int
    history: History
    values: Mapping[str, float | None]
    broken: tuple[str, ...]


def load(path: Path) -> Recipe:
    """The recipe of a file, registered or not. Raises `BadRecipe`."""
    if not path.is_file():
        raise BadRecipe(f"no recipe {path}")
    try:
        module = from_file(path, f"d5test_recipe_{path.stem}")
    except Exception as error:  # noqa: BLE001 - whatever a stranger's file raises
        raise BadRecipe(f"{path}: {type(error).__name__}: {error}") from None
    require_sections(path.stem, vars(module))
    recipe = Recipe.of(path.stem, module.FIXED, module.MUTABLE, module.METRICS)
    recipe.require_registered(path.parent)
    return recipe


def train(
    recipe: Recipe, client: Any, seed: int, dataset: Dataset, listeners: Sequence[Listener] = ()
) -> Run:
    """One run on the backend of `client`. Raises `SamplingFault`."""
    samples, kind = len(dataset.train), recipe.mutable["optimizer_kind"]
    sampler = recipe.sampler(samples, seed)
    shuffles = bool(getattr(sampler, "shuffles", False))
    examine(lambda: [recipe.sampler(samples, seed)], samples, shuffles=shuffles)
    with closing(Session(client, recipe.network(seed), recipe.optimizer(), kind)) as session:
        trainer = Trainer(session, dataset, sampler, listeners=listeners)
        return finished(recipe, seed, trainer.run(recipe.fixed["epochs"]))


def finished(recipe: Recipe, seed: int, history: History) -> Run:
    """A run that is over, with its metrics and the bounds that it broke.

    Time to accuracy is to the bound of the test accuracy.
    """
    wanted = [bounds[0] for metric, *bounds in recipe.metrics if metric == TEST_ACCURACY]
    values = {
        TEST_ACCURACY.name: history.final_accuracy,
        TRAINING_ACCURACY.name: next(iter(history.training_accuracy[-1:]), None),
        THROUGHPUT.name: history.throughput,
        TRAINING_TIME.name: history.elapsed,
        TIME_TO_ACCURACY.name: history.time_to(wanted[0]) if wanted else None,
    }
    return Run(seed, history, values, tuple(broken(recipe, values)))


def broken(recipe: Recipe, values: Mapping[str, float | None]) -> list[str]:
    """The bounds that a run broke, in words."""
    words = []
    for metric, *bounds in recipe.metrics:
        value = values.get(metric.name)
        if len(bounds) == 1:
            bounds = [*bounds, None] if metric.better == "higher" else [None, *bounds]
        low, high = bounds
        shown = "never reached" if value is None else f"{value:.6g} {metric.unit}"
        if low is not None and not (value is not None and value >= low):
            words.append(f"{metric.name}: {shown}, at least {low:g} is wanted")
        if high is not None and not (value is not None and value <= high):
            words.append(f"{metric.name}: {shown}, at most {high:g} is wanted")
    return words


def record(recipe: Recipe, about: Any, dataset: Dataset, runs: Sequence[Run], file: Path) -> None:
    """Append runs to a result file."""
    entry = {
        "recipe": recipe.name,
        "fixed": recipe.digest(),
        "dataset": dataset.digest,
        "seeds": [run.seed for run in runs],
        "mutable": {key: _word(value) for key, value in recipe.mutable.items()},
        "backend": describe_backend(about),
        "hardware": environment(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "runs": [
            {"seed": run.seed, "values": dict(run.values), "broken": list(run.broken),
             "right": not run.broken, "history": asdict(run.history)}
            for run in runs
        ],
    }  # fmt: skip
    file.parent.mkdir(parents=True, exist_ok=True)
    before = _runs_before(file) if file.is_file() else []
    replace(file, json.dumps([*before, entry], indent=1))


def _runs_before(file: Path) -> list[Any]:
    """The runs in a result file. Raises `BadRecipe` rather than lose them."""
    try:
        runs = parsed(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise BadRecipe(f"{file} holds no runs, and is left as it is: {error}") from None
    if not isinstance(runs, list):
        raise BadRecipe(f"{file} holds no list of runs, and is left as it is")
    return runs


def run_recipe(
    fixed: Mapping[str, Any], mutable: Mapping[str, Any], metrics: Sequence[tuple[Any, ...]]
) -> bool:
    """Run the recipe of the file that calls this; whether every seed kept every bound."""
    path = Path(inspect.stack()[1].filename)
    try:
        recipe = Recipe.of(path.stem, fixed, mutable, metrics)
        recipe.require_registered(path.parent)
        dataset, runs = recipe.dataset(), []
        rules = environment_of([type(recipe.optimizer())])
        options = {"environment": rules, **recipe.mutable["executor_kwargs"]}
        with WorkerClient(recipe.mutable["backend"], **options) as client:
            for seed in recipe.fixed["seeds"]:
                with ProgressBar() as bar:
                    runs.append(train(recipe, client, seed, dataset, [bar]))
                print(in_words(recipe, runs[-1]))
            record(recipe, client.about, dataset, runs, result_file(recipe, client.name))
    except (BadRecipe, BackendFailed, UnknownBackend) as error:
        print(error)
        return False
    except (BadFile, NoPackage, SamplingFault, Unsupported, Crashed, Hung, Raised) as error:
        print(f"{path.stem}: {error}")
        return False
    return not any(run.broken for run in runs)


def result_file(recipe: Recipe, backend: str) -> Path:
    """Where the runs of a recipe on a backend are kept."""
    return RESULTS / f"{recipe.name}-{backend.partition('@')[0].rpartition('/')[2]}.json"


def in_words(recipe: Recipe, run: Run) -> str:
    """A run in one line, and a line for each bound that it broke."""
    values = ", ".join(f"{name} {v:.4g}" for name, v in run.values.items() if v is not None)
    return "\n  ".join([f"{recipe.name}, seed {run.seed}: {values}", *run.broken])


def _word(value: Any) -> Any:
    """A part as JSON: what is callable by its name."""
    if callable(value):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, Mapping):
        return {str(key): _word(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_word(v) for v in value]
    return value


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
            hint = f"; it has {close[0]}: did you mean {section}?" if close else ""
            raise BadRecipe(
                f"{recipe}: there is no {section}{hint}; a recipe has {', '.join(SECTIONS)}"
            )


def require_call(
    recipe: str, part: str, make: Any, keywords: Mapping[str, Any], /, *arguments: Any, **own: Any
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


def _meant(name: object, known: Iterable[str]) -> str:
    """What was probably meant, and all that there is."""
    known = list(known)
    close = difflib.get_close_matches(str(name), known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}known: {', '.join(known) or 'none'}"
