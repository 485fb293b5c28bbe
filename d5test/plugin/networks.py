"""Networks and models: which tests of level 1 there are.

Requirements: `--network` is resolved before anything is collected: a network of ours, a model of
the onnx package, one that the user brings, or the path of an ONNX file, which is a model too where
outputs lie beside it; what is not named is all of ours, all of onnx's, and those of entry points;
tests are chosen by their fields, never by patterns over their ids.
"""

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from d5test.arguments import listed
from d5test.names import BadName
from d5test.plugin.parametrise import is_ours
from d5test.plugin.selection import resolving, selected

NETWORKS = pytest.StashKey[tuple[Mapping[str, Any], Mapping[str, Any]]]()
"""Those that are trained and judged with gradients; the models that only infer."""


@resolving()
def pytest_configure(config: pytest.Config) -> None:
    """Resolve what is named."""
    asked = listed(config.getoption("--network"))
    if asked:
        config.stash[NETWORKS] = resolved(asked)


def resolved(asked: tuple[str, ...]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The networks and the models that are asked for; all if none is. Raises `BadName`."""
    from d5test.networks.external import ExternalModel, data_sets, external_models
    from d5test.networks.zoo import NETWORKS as BUILT

    files = {name: Path(name) for name in asked if name.endswith(".onnx")}
    for stem, count in Counter(path.stem for path in files.values()).items():
        if count > 1:
            raise BadName(f"{count} files are called {stem}.onnx: name one a run")
    models = external_models()
    inside = [name for name in asked if name not in files]
    selection = (
        selected("network", inside, {**BUILT, **models}, built) if inside or not files else {}
    )
    ours = {name: row for name, row in selection.items() if name not in models}
    ours |= {path.stem: read(name, path) for name, path in files.items()}
    others = {name: row for name, row in selection.items() if name in models}
    others |= {name: ExternalModel(name, path) for name, path in files.items() if data_sets(path)}
    return ours, others


def read(name: str, path: Path) -> Any:
    """The network of an ONNX file. Raises `BadName`."""
    from d5test.networks.zoo import Built

    if not os.path.isfile(path):
        raise BadName(f"network {name!r}: there is no such file")
    try:
        return Built.from_file(path)
    except Exception as error:  # noqa: BLE001 - whatever onnx raises of a damaged file
        words = " ".join(f"{type(error).__name__}: {error}".split())
        raise BadName(f"network {name!r} cannot be read: {words}") from None


def built(name: str, value: Any) -> Any:
    """The row of a network that a user brings: a `Built`, or a function that makes a `Network`."""
    from d5test.networks.zoo import Built

    if isinstance(value, Built):
        return value
    try:
        return Built.made_by(name.rpartition(":")[2], value)
    except Exception as error:  # noqa: BLE001 - whatever a stranger's function raises
        words = " ".join(f"{type(error).__name__}: {error}".split())
        raise BadName(f"network {name!r} cannot be made: {words}") from None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise what asks for `network`, or for `model`."""
    stash = metafunc.config.stash
    for position, name in enumerate(("network", "model")):
        if is_ours(metafunc, name):
            if NETWORKS not in stash:
                stash[NETWORKS] = resolved(())
            rows = stash[NETWORKS][position]
            metafunc.parametrize(name, list(rows.values()), indirect=True, ids=list(rows))
