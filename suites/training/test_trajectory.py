"""A hundred steps of an optimizer stay within the spread of noisy references."""

from d5test.client.client import BackendClient
from d5test.fixtures.training import Runs
from d5test.plugin.optimizers import RuleCell
from d5test.training.step import variant
from d5test.training.trajectory import distance, followed, in_words


def test_trajectory(
    training_run: Runs, backend: BackendClient, rule_cell: RuleCell, updater_kind: str
) -> None:
    dtype, check = rule_cell.dtype, f"trajectory {updater_kind}"
    rules = list(followed(rule_cell.rule, dtype))
    with training_run(check, rule_cell.rule, dtype, rules[0]) as run:
        for rule in rules:
            found = distance(backend, updater_kind, rule, dtype)
            judged = variant(backend, rule, updater_kind)
            run.require(found, f"{judged!r}, {updater_kind}: {found.headline}", in_words)
            run.count(found)
