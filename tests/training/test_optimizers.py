"""Wrong optimizers are found, by one step or by a hundred, and named; right ones are not."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from d5test.backends.base import Unsupported
from d5test.backends.numpy import NumpyUpdater
from d5test.case import FLOATS, Case
from d5test.client.messages import Calls
from d5test.outcome.fault import Fault
from d5test.reference.optimizers import OPTIMIZERS, Adam, AdamW, Momentum, Nesterov, RMSProp
from d5test.reference.steps import STEPS, as_step
from d5test.training.course import CHANGES, GROUPED, impossible
from d5test.training.step import STEP, SUSPECTS, ForgetfulAMSGrad, drawn, suspects
from d5test.training.trajectory import KEPT, USUAL, Distance, distance, followed, in_words
from tests.nightly import thinned
from tests.training.wrong import (
    Confused,
    Decaying,
    Forgetful,
    FromTwo,
    Keeping,
    Late,
    Local,
    OneGroup,
    Overwriting,
    PerParameter,
    Reborn,
    SharedByShape,
    Stubborn,
    Stuck,
    Twice,
    Unlike,
    Unmoved,
    Unstrided,
    mistaken,
)

MISTAKES = {
    "Adam": {
        "beta1 and beta2 exchanged": lambda r: r.with_(beta1=r.beta2, beta2=r.beta1),
        "the moments' bias not corrected": lambda r: r.with_(bias_correction=False),
        "beta1 in the second moment too": lambda r: r.with_(beta2=r.beta1),
        "epsilon before the correction, or after it": lambda r: r.with_(epsilon_hat=True),
        "no epsilon": lambda r: r.with_(epsilon=0.0),
        "the first moment's bias not corrected": lambda r: Unlike(**vars(r), what="first"),
        "the second moment's bias not corrected": lambda r: Unlike(**vars(r), what="second"),
        "each moment corrected with the other's beta": lambda r: Unlike(**vars(r), what="swapped"),
        "epsilon under the root, of the corrected moment": lambda r: Unlike(
            **vars(r), what="corrected"
        ),
        "epsilon under the root, of the moment as it is": lambda r: Unlike(
            **vars(r), what="uncorrected"
        ),
        "a step 1.001 times as long": lambda r: r.with_(lr=1.001 * r.lr),
        "the parameter not moved": lambda r: r.with_(lr=0.0),
    },
    "AdamW": {
        "decay without lr": lambda r: (
            r.with_(weight_decay=r.weight_decay / r.lr) if r.decoupled else r
        ),
        "the other kind of decay": lambda r: r.with_(decoupled=False),
        "no weight decay": lambda r: r.with_(weight_decay=0.0),
        "decay applied twice": lambda r: Twice(**vars(r)),
    },
    "Momentum": {
        "Nesterov instead of Momentum": lambda r: Nesterov(**vars(r)),
        "decay applied twice": lambda r: r.with_(weight_decay=2 * r.weight_decay),
        "no momentum": lambda r: r.with_(momentum=0.0),
        "the gradient dampened by 1 - momentum": lambda r: r.with_(dampening=r.momentum),
        "a step 0.999 times as long": lambda r: r.with_(lr=0.999 * r.lr),
        "lr on the other side of the velocity": lambda r: r.with_(lr_in_velocity=True),
        "the sign of lr": lambda r: r.with_(lr=-r.lr),
    },
    "Nesterov": {"Momentum instead of Nesterov": lambda r: Momentum(**vars(r))},
    "AdaGrad": {
        "epsilon on the other side of the root": lambda r: r.with_(epsilon_inside=True),
    },
    "AMSGrad": {
        "the largest second moment forgotten": lambda r: ForgetfulAMSGrad(**vars(r)),
        "the largest of the corrected moments, or of those as they are": lambda r: r.with_(
            largest_corrected=not r.largest_corrected
        ),
    },
    "RMSProp": {"rho and 1 - rho exchanged": lambda r: r.with_(rho=1 - r.rho)},
}
ROWS = [(rule, name) for rule, mistakes in MISTAKES.items() for name in mistakes]


def first_fault(client: Any, rule: str, dtype: str) -> Fault | None:
    """The first fault among fifty steps that are drawn."""
    found: list[Fault] = []

    @seed(7)
    @settings(max_examples=50, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(drawn(STEPS[rule], dtype))
    def draw(case: Case) -> None:
        if not found:
            try:
                STEP.run(client, case)
            except Fault as fault:
                found.append(fault)
            except Unsupported:
                pass

    draw()
    return found[0] if found else None


@pytest.mark.parametrize(("rule", "name"), ROWS)
def test_a_mistake_is_named_after_one_step(rule: str, name: str) -> None:
    fault = first_fault(Local(mistaken(MISTAKES[rule][name])), rule, "float32")
    assert fault is not None
    assert name in fault.details["looks like"]


def test_a_fault_of_a_step_names_the_optimizer_alone() -> None:
    """And says nothing of how ONNX stores attributes, of which an optimizer has none."""
    client = Local(mistaken(lambda rule: rule.with_(epsilon=rule.epsilon + 1e-15)))
    fault = first_fault(client, "Adam", "float64")
    assert fault is not None
    calls = Calls(("torch.no_grad",))
    client.record = lambda *words, **more: calls  # type: ignore[method-assign]
    fault.name_calls(client)
    assert fault.calls is calls
    assert fault.headline.startswith(f"{fault.case.op!r}: ")
    assert "attributes" not in fault.details


SAMPLE = ROWS[::2]
"""To name one takes as many courses as there are mistakes; after one step all are named."""


@pytest.mark.parametrize(("rule", "name"), thinned(SAMPLE, 12))
def test_a_mistake_is_named_after_a_hundred_steps(rule: str, name: str) -> None:
    found = distance(Local(mistaken(MISTAKES[rule][name])), "native", USUAL[rule], "float32")
    assert not found.right
    assert name in found.looks_like


@pytest.mark.parametrize(
    "kind", thinned((Forgetful, Stuck, Late, SharedByShape, Confused, Stubborn), 6)
)
def test_what_one_step_cannot_show_leaves_the_course(kind: Any) -> None:
    found = distance(Local(kind), "native", USUAL["Adam"], "float32")
    assert found.leaves is not None
    if kind in (Forgetful, Stubborn):
        assert found.leaves == (51 if kind is Forgetful else 11)


DONE_ON_THE_WAY = {
    OneGroup: (1, ("w", "b", "s")),
    Reborn: (8, ("w", "b", "s", "v")),
    Decaying: (16, ("b",)),
    Unstrided: (1, ("v",)),
    Keeping: (2, ("w", "b", "s", "v")),
}
"""After which step whose wrong handling of what is done shows, and in which parameters."""


@pytest.mark.parametrize("kind", DONE_ON_THE_WAY)
def test_what_is_done_to_an_optimizer_on_the_way_is_judged(kind: Any) -> None:
    leaves, wrong = DONE_ON_THE_WAY[kind]
    found = distance(Local(kind), "native", USUAL["Momentum"], "float32")
    assert (found.leaves, found.wrong) == (leaves, wrong)


def test_what_begins_late_looks_like_no_usual_mistake() -> None:
    """A rule that counts no steps is the same with any number of them."""
    found = distance(Local(Forgetful), "native", USUAL["Momentum"], "float32")
    assert (found.leaves, found.looks_like) == (51, "")


@pytest.mark.nightly
def test_steps_that_are_counted_from_2_are_named() -> None:
    found = distance(Local(FromTwo), "native", USUAL["Adam"], "float32")
    assert "steps counted from 2" in found.looks_like


def test_what_is_done_to_one_parameter_explains_that_one_alone() -> None:
    def said(leaves: int, *wrong: str) -> str:
        ratios = (0.0,) * (leaves - 1) + (2.0,) * (101 - leaves)
        return in_words(Distance(ratios, wrong=wrong, changes=tuple(CHANGES)))["leaves"]

    assert said(19, "b") == "after step 19 of 100 (b has no gradient in steps 16 to 18)"
    assert said(1, "v") == "after step 1 of 100 (v has 0.5 times the learning rate)"
    assert said(1, "w", "b", "s") == said(1, "v")
    assert said(16, "w", "b") == "after step 16 of 100 (b has no gradient in steps 16 to 18)"
    assert said(19, "w", "b") == "after step 19 of 100"
    assert said(1, "w", "b", "s", "v") == "after step 1 of 100"


@dataclass(frozen=True, kw_only=True)
class More(AdamW):
    """It has a hyperparameter of its own."""

    gamma: float = 0.5


def test_a_rule_that_is_a_kind_of_ours_has_its_suspects() -> None:
    usual = {name for name, _ in suspects(as_step(AdamW()))}
    own = {name for name, _ in suspects(as_step(type("Mine", (AdamW,), {})()))}
    assert own == usual
    of_adam = "epsilon under the root, of the corrected moment"
    assert of_adam in own
    assert {name for name, _ in suspects(as_step(More()))} < own - {of_adam}


def test_a_gradient_that_was_kept_is_told() -> None:
    found = distance(Local(Keeping), "native", USUAL["Momentum"], "float32")
    assert found.looks_like == KEPT


def test_a_gradient_is_left_as_it_is() -> None:
    found = distance(Local(Overwriting), "native", USUAL["Momentum"], "float32")
    assert max(found.ratios) <= 1
    assert not found.right
    assert found.headline == "a gradient is overwritten"
    assert in_words(found) == {"overwritten": "that of w, in step 1"}
    documented = type("Documented", (Overwriting,), {"overwrites": True})
    assert distance(Local(documented), "native", USUAL["Momentum"], "float32").right
    for kind, said in ((Overwriting, ("known failure: since 7",)), (NumpyUpdater, ())):
        known = type("Known", (kind,), {"spoils": {"Momentum": "since 7"}})
        left = distance(Local(known), "native", USUAL["Momentum"], "float32").left
        assert tuple(reason for reason in left if "since" in reason) == said


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_a_course_without_a_decay_of_weights_is_followed_too(rule: str, dtype: str) -> None:
    decays = [bool(each.weight_decay) for each in followed(OPTIMIZERS[rule], dtype)]
    assert decays == ([True, False] if dtype == "float32" else [True])


def test_everything_can_be_done_on_the_way() -> None:
    assert distance(Local(PerParameter), "native", USUAL["Adam"], "float32").right
    step = as_step(Adam())
    assert not impossible(lambda: PerParameter(step, {GROUPED: np.zeros(3)}))


@pytest.mark.nightly
def test_the_parameter_that_is_wrong_is_named() -> None:
    found = distance(Local(Unmoved), "native", USUAL["Adam"], "float32")
    assert found.wrong == ("b", "s")
    assert found.looks_like == "the parameter not moved"
    late = distance(Local(Late), "native", USUAL["Adam"], "float32")
    assert late.wrong == ("w", "b", "s", "v")


SLIGHT = {
    "lr 0.1001 for 0.1": (Momentum(lr=0.1), lambda r: r.with_(lr=0.1001)),
    "epsilon 1e-7 for 1e-8": (Adam(epsilon=1e-8), lambda r: r.with_(epsilon=1e-7)),
    "beta2 0.998 for 0.999": (AdamW(), lambda r: r.with_(beta2=0.998)),
    "rho 0.89 for 0.9": (RMSProp(), lambda r: r.with_(rho=0.89)),
}


@pytest.mark.parametrize("name", thinned(SLIGHT, 4))
def test_a_slight_change_leaves_the_course_in_float64(name: str) -> None:
    rule, change = SLIGHT[name]
    client = Local(mistaken(change))
    assert distance(client, "native", rule, "float64").leaves in (1, 2)
    assert distance(client, "reference", rule, "float64").right


def test_a_wrong_learning_rate_leaves_the_course_in_float32() -> None:
    rule, change = SLIGHT["lr 0.1001 for 0.1"]
    assert not distance(Local(mistaken(change)), "native", rule, "float32").right


@pytest.mark.parametrize("rule", thinned(OPTIMIZERS, 2))
def test_the_right_ones_are_not_accused(rule: str) -> None:
    client = Local(NumpyUpdater)
    assert first_fault(client, rule, "float32") is None
    assert distance(client, "native", USUAL[rule], "float32").right


def test_every_suspect_is_a_mistake_of_some_rule() -> None:
    met = {
        name
        for rule in USUAL.values()
        for name, _ in suspects(replace(as_step(rule, t=3), **_dampened(rule)))
    }
    assert met == set(SUSPECTS)


def _dampened(rule: Any) -> dict[str, float]:
    return {"dampening": 0.25} if hasattr(rule, "dampening") else {}
