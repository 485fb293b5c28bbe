"""From the same initial parameters the first losses are those of the references."""

from d5test.client.client import BackendClient
from d5test.fixtures.training import Runs
from d5test.training.curve import PAUSE, Curve, in_words


def test_curve(
    training_run: Runs, backend: BackendClient, curve: Curve, updater_kind: str
) -> None:
    """At a stretch, and interrupted after some steps and resumed."""
    rule, wrong = curve.optimizer, "the losses are wrong"
    what = f"{curve.name} with {rule!r}, {updater_kind}"
    with training_run(f"curve {updater_kind}", type(rule), "float32", curve.name) as run:
        found = curve.distance(backend, updater_kind)
        run.require(found, f"{what}: {wrong}", in_words)
        resumed = curve.distance(backend, updater_kind, PAUSE)
        run.require(resumed, f"{what}, resumed after step {PAUSE}: {wrong}", in_words)
        run.count(found)
