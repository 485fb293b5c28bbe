"""Is this a pytest that hands its tests to a cluster, one that is served tests, or neither?

Requirements: Dask is not imported here; what does not go together is one line and exit status 4.
"""

import os
import re

import pytest

from d5test.distributed.provider import launched
from d5test.names import hint
from d5test.plugin.workers import QUERIES

SERVED = "D5TEST_SERVED"
"""The variable by which a host tells its pytest the pipes, `READ,WRITE`."""
LOCAL = "dask"
APART = {
    "np": "--np has ranks run every test",
    "control": "what is timed needs a machine of its own",
    "gate_old": "what is timed needs a machine of its own",
    "benchmark_json": "what is timed needs a machine of its own",
    "benchmark_save": "what is timed needs a machine of its own",
    "benchmark_autosave": "what is timed needs a machine of its own",
    "numprocesses": "-n distributes tests, too",
    "usepdb": "a debugger needs a terminal",
    "trace": "a debugger needs a terminal",
    "replay": "--replay runs nothing",
}
"""Options that do not go together with a cluster, and why."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register what hands tests over, or what is served them."""
    on, count = config.getoption("--on"), config.getoption("--workers")
    pipes = os.environ.pop(SERVED, None)
    if pipes is not None:
        from d5test.plugin.cluster.served import Served

        config.pluginmanager.register(Served(config, pipes), "d5test-served")
        return
    if count and on != LOCAL:
        raise pytest.UsageError("--workers=N is for --on=dask; a scheduler has workers of its own")
    if not on or any(getattr(config.option, query, None) for query in QUERIES):
        return
    if on != LOCAL and not re.fullmatch(r"[a-z]+://[^\s/]+", on):
        meant = hint(on, [LOCAL])
        more = meant if meant.startswith("did") else f"{LOCAL}, or tcp://HOST:8786 of a scheduler"
        raise pytest.UsageError(f"--on={on}: {more}")
    for name, why in APART.items():
        if getattr(config.option, name, None):
            raise pytest.UsageError(f"--{name.replace('_', '-')} and --on: {why}")
    if launched() is not None:
        raise pytest.UsageError("--on under mpirun: call pytest without it")
    if config.option.collectonly:
        return
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise pytest.UsageError("--on needs Dask: pip install 'd5test[dask]'") from None
    from d5test.plugin.cluster.controller import Controller

    config.pluginmanager.register(Controller(config, on, count), "d5test-controller")
