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
in the result file, those that failed and those of earlier days among them.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from d5test.files import parsed, replace
from d5test.names import from_file
from d5test.networks.network import Network
from d5test.record import describe_backend, environment
from d5test.reference.optimizers import Optimizer
from d5test.training.datasets import Dataset, NoPackage
from d5test.training.files import BadFile
from d5test.training.history import (
    TEST_ACCURACY,
    THROUGHPUT,
    TIME_TO_ACCURACY,
    TRAINING_ACCURACY,
    TRAINING_TIME,
    History,
)
from d5test.training.parts import BadRecipe as BadRecipe
from d5test.training.parts import called, complete, require_sections
from d5test.training.samplers import SamplingFault, examine
from d5test.training.session import Session
from d5test.training.trainer import Listener, Trainer

REGISTER = "FIXED.json"
RESULTS = Path(".d5test") / "recipes"


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
        """Raises `BadRecipe` where a part is missing, unknown, or cannot be what it is."""
        return cls(name, *complete(name, fixed, mutable, metrics))

    def network(self, seed: int) -> Network:
        """The network with the initial parameters of a seed: the same for every backend.

        Raises `BadRecipe` where the model refuses its arguments.
        """
        try:
            made: Network = self._called("model")(**self.fixed["model_kwargs"], seed=seed)
        except ValueError as error:
            raise BadRecipe(f"{self.name}: model: {error}") from None
        return made

    def dataset(self) -> Dataset:
        """The data. Raises `BadFile` and `NoPackage`."""
        made: Dataset = self._called("dataset")(**self.fixed["dataset_kwargs"])
        return made

    def optimizer(self) -> Optimizer:
        """The update rule, with its hyperparameters. Raises `BadRecipe` where it is none."""
        made = self._called("optimizer")(**self.mutable["optimizer_kwargs"])
        if not isinstance(made, Optimizer):
            kind = f"{Optimizer.__module__}.{Optimizer.__name__}"
            raise BadRecipe(f"{self.name}: optimizer: {made!r} is no update rule, a {kind}")
        return made

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
    mutable, samples = recipe.mutable, len(dataset.train)
    sampler = sampled(recipe, samples, seed)
    kind = mutable["optimizer_kind"]
    session = Session(client, recipe.network(seed), recipe.optimizer(), kind)
    try:
        history = Trainer(session, dataset, sampler, listeners=listeners).run(
            recipe.fixed["epochs"]
        )
    finally:
        session.close()
    values = measured(recipe, history)
    return Run(seed, history, values, tuple(broken(recipe, values)))


def sampled(recipe: Recipe, samples: int, seed: int) -> Any:
    """The recipe's sampler, examined. Raises `SamplingFault`."""
    sampler = recipe.sampler(samples, seed)
    shuffles = bool(getattr(sampler, "shuffles", False))
    examine(lambda: [recipe.sampler(samples, seed)], samples, shuffles=shuffles)
    return sampler


def measured(recipe: Recipe, history: History) -> dict[str, float | None]:
    """The metrics of a run by name; time to accuracy: to the bound of the test accuracy."""
    wanted = [bounds[0] for metric, *bounds in recipe.metrics if metric == TEST_ACCURACY]
    return {
        TEST_ACCURACY.name: history.final_accuracy,
        TRAINING_ACCURACY.name: next(iter(history.training_accuracy[-1:]), None),
        THROUGHPUT.name: history.throughput,
        TRAINING_TIME.name: history.elapsed,
        TIME_TO_ACCURACY.name: history.time_to(wanted[0]) if wanted else None,
    }


def broken(recipe: Recipe, values: Mapping[str, float | None]) -> list[str]:
    """The bounds that a run broke, in words."""
    found = []
    for metric, *bounds in recipe.metrics:
        value = values.get(metric.name)
        low, high = bounds if len(bounds) == 2 else (None, None)
        if len(bounds) == 1:
            low, high = (bounds[0], None) if metric.better == "higher" else (None, bounds[0])
        shown = "never reached" if value is None else f"{value:.6g} {metric.unit}"
        if low is not None and not (value is not None and value >= low):
            found.append(f"{metric.name}: {shown}, at least {low:g} is wanted")
        if high is not None and not (value is not None and value <= high):
            found.append(f"{metric.name}: {shown}, at most {high:g} is wanted")
    return found


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
        found = parsed(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise BadRecipe(f"{file} holds no runs, and is left as it is: {error}") from None
    if not isinstance(found, list):
        raise BadRecipe(f"{file} holds no list of runs, and is left as it is")
    return found


def run_recipe(
    fixed: Mapping[str, Any], mutable: Mapping[str, Any], metrics: Sequence[tuple[Any, ...]]
) -> bool:
    """Run the recipe of the file that calls this; whether every seed kept every bound."""
    from d5test.backends.updater import environment as environment_of
    from d5test.client.client import (
        BackendFailed,
        Crashed,
        Hung,
        Raised,
        UnknownBackend,
        Unsupported,
        WorkerClient,
    )
    from d5test.training.progress import ProgressBar

    path = Path(inspect.stack()[1].filename)
    try:
        recipe = Recipe.of(path.stem, fixed, mutable, metrics)
        recipe.require_registered(path.parent)
        dataset, runs = recipe.dataset(), []
        own = environment_of([type(recipe.optimizer())])
        options = {"environment": own, **recipe.mutable["executor_kwargs"]}
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
    if isinstance(value, Callable):  # type: ignore[arg-type]
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, Mapping):
        return {str(key): _word(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_word(v) for v in value]
    return value
