"""A backend in this process, for debuggers: a crash of the framework is a crash of pytest."""

from __future__ import annotations

from typing import Any

from d5test.client.client import BackendClient
from d5test.client.messages import BackendFailed, UnknownBackend, typed
from d5test.client.registry import Spec, resolve
from d5test.worker import wire, worker
from d5test.worker.service import Service


def in_this_process(spec: Spec | str) -> Any:
    """The class of a backend, imported here. Raises `UnknownBackend` and `BackendFailed`."""
    spec = resolve(spec) if isinstance(spec, str) else spec
    if spec.python is not None:
        raise UnknownBackend(f"{spec.name} names another interpreter: not in this process")
    try:
        return worker.load(spec.target)
    except Exception as error:
        kind = type(error).__name__
        why = f"{spec.name} cannot be imported: {kind}: {error}"
        raise BackendFailed(why, kind=kind) from error


class InProcessClient(BackendClient):
    """The same questions and answers as `WorkerClient`'s, without a process between."""

    def __init__(self, spec: Spec | str, device: str = "cpu") -> None:
        spec = resolve(spec) if isinstance(spec, str) else spec
        self.name = spec.name
        make = in_this_process(spec)
        self._verbs = Service(lambda: make(device))

    def _answer(self, request: tuple[Any, ...]) -> tuple[Any, ...]:
        arrived = wire.loads(wire.dumps(request), lambda array: array)
        answer: tuple[Any, ...] = wire.loads(self._verbs.reply(arrived), typed)
        return answer
