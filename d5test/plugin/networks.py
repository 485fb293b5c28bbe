"""Networks and models: which tests of level 1 there are.

Requirements: `--network` is resolved before anything is collected: a network of ours, a model of
the onnx package, or the path of an ONNX file, which is a model too where outputs lie beside it;
what is not named is all of ours and all of onnx's; tests are chosen by their fields, never by
patterns over their ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from d5test.arguments import listed
from d5test.plugin import names
from d5test.plugin.parametrise import is_ours

NETWORKS = pytest.StashKey[tuple[Mapping[str, Any], Mapping[str, Any]]]()
"""Those that are trained and judged with gradients; the models that only infer."""


def pytest_configure(config: pytest.Config) -> None:
    """Resolve what is named."""
    asked = listed(config.getoption("--network"))
    if asked:
        config.stash[NETWORKS] = resolved(asked)


def resolved(asked: tuple[str, ...]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The networks and the models that are named; all if none is."""
    from d5test.networks.strangers import Stranger, data_sets, strangers
    from d5test.networks.zoo import NETWORKS as BUILT
    from d5test.networks.zoo import Built

    models = strangers()
    files = {name: Path(name) for name in asked if name.endswith(".onnx")}
    for name, path in files.items():
        if not path.is_file():
            raise pytest.UsageError(f"network {name!r}: there is no such file")
    for stem, count in Counter(path.stem for path in files.values()).items():
        if count > 1:
            raise pytest.UsageError(f"{count} files are called {stem}.onnx: name one a run")
    inside = [name for name in asked if name not in files]
    known = {**BUILT, **models}
    chosen = names.chosen("network", inside, known) if inside or not files else {}
    ours = {name: row for name, row in chosen.items() if name in BUILT}
    for name, path in files.items():
        try:
            ours[path.stem] = Built.from_file(path)
        except ValueError as error:
            told = " ".join(str(error).split())
            raise pytest.UsageError(f"network {name!r} cannot be read: {told}") from None
    others = {name: row for name, row in chosen.items() if name in models}
    others |= {name: Stranger(name, path) for name, path in files.items() if data_sets(path)}
    return ours, others


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise what asks for `network`, or for `model`."""
    for position, name in enumerate(("network", "model")):
        if is_ours(metafunc, name):
            stash = metafunc.config.stash
            if NETWORKS not in stash:
                stash[NETWORKS] = resolved(())
            rows = stash[NETWORKS][position]
            metafunc.parametrize(name, list(rows.values()), indirect=True, ids=list(rows))
