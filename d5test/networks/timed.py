"""A network timed on a backend; see `d5test.timed.Timed`. Where the time goes is in the record."""

from collections.abc import Sequence
from typing import Any

from d5test.backends.base import Unsupported
from d5test.client.client import BackendClient
from d5test.client.messages import Round
from d5test.networks.executor import ANSWER_SECONDS, Executor
from d5test.networks.whole import Expectations, expectation, multiplications
from d5test.networks.zoo import Built
from d5test.record import Record, describe_backend, describe_judgement, environment
from d5test.timed import describe_rounds

PASSES = 10
"""Passes in which each node is timed alone."""


class TimedNetwork:
    """A network, its inference or its inference with backprop."""

    def __init__(
        self, client: BackendClient, network: Built, direction: str, expectations: Expectations
    ) -> None:
        self._client, self._built, self._direction = client, network, direction
        self._executor = Executor(client, network.network())
        backward = direction == "backward"
        self._no_loss = backward and (network.loss is None or client.about.reads_models)
        self._loss = network.loss if backward else None
        self._expectations = expectations

    def start(self, loops: int | None = None) -> int:
        """See `d5test.timed.Timed`."""
        if self._no_loss:
            raise Unsupported("no gradient of a loss")
        with self._client.answering_within(ANSWER_SECONDS):
            return self._executor.start_timing([self._expected.inputs], self._loss, loops)

    def round(self) -> Round:
        """See `d5test.timed.Timed`."""
        with self._client.answering_within(ANSWER_SECONDS):
            return self._client.time_round()

    def record(self, rounds: Sequence[Round], loops: int) -> dict[str, Any]:
        """See `d5test.timed.Timed`; with samples a second and the seconds of each node."""
        last, inputs = self._client.stop_timing(), self._expected.inputs
        graph = self._executor.graph(inputs)
        results: dict[str, Any] = dict(zip(graph.outputs, last.outputs[0], strict=True))
        if last.gradients is not None:
            names = (f"gradient of {name}" for name in graph.parameters)
            results |= dict(zip(names, last.gradients[0], strict=True))
        record = Record(
            **describe_rounds(rounds),
            problem=self._built.name,
            source="d5test.networks.zoo",
            operator="",
            attributes={},
            shapes=[x.shape for x in inputs.values()],
            dtype="float32",
            multiplications=multiplications(graph),
            input_bytes=sum(x.nbytes for x in inputs.values()),
            direction=self._direction,
            backend=describe_backend(self._client.about),
            loops=loops,
            output_bytes=sum(y.nbytes for y in last.outputs[0]),
            judgement=describe_judgement(self._expected.judged(results)),
            memory={"resident": last.resident_memory, "device": last.device_memory},
            cold=False,
            environment=environment(),
        ).to_json()
        record["samples_per_second"] = len(next(iter(inputs.values()))) / record["median"]
        return {**record, **self._nodes()}

    def close(self) -> None:
        """See `d5test.timed.Timed`."""
        self._executor.unload()

    @property
    def _expected(self) -> Any:
        return expectation(self._expectations, self._built, self._executor.network, self._loss)

    def _nodes(self) -> dict[str, Any]:
        """Where the time of an inference goes; nothing where no node can be timed alone."""
        if self._direction == "backward" or self._client.about.mode != "eager":
            return {}
        try:
            with self._client.answering_within(ANSWER_SECONDS):
                profile = self._executor.profile(self._expected.inputs, PASSES)
        except Unsupported:
            return {}
        return {"node_seconds": profile.medians, "framework_overhead": profile.overhead}
