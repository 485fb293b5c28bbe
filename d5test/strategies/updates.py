"""Cases of optimizers as nodes: the hyperparameters and gradients of level 2, some tensors."""

from d5test.case import Tensor
from d5test.reference.operators import updates
from d5test.strategies.draw import Draw
from d5test.strategies.optimizers import EPSILONS, GRADIENTS, SQUARES, TIMES, decay, rate
from d5test.strategies.registry import choices, inputs

REGULARISED = (0.0, 0.0625, 0.0078125)

choices(
    updates.AdagradUpdate,
    decay_factor=(0.0, 0.0625),
    epsilon=EPSILONS,
    norm_coefficient=REGULARISED,
)
choices(
    updates.AdamUpdate,
    alpha=decay,
    beta=decay,
    epsilon=EPSILONS,
    norm_coefficient=REGULARISED,
    norm_coefficient_post=REGULARISED,
)
choices(
    updates.MomentumUpdate,
    alpha=decay,
    beta=(1.0, 0.75),
    mode=("standard", "nesterov"),
    norm_coefficient=REGULARISED,
)


@inputs(updates.AdagradUpdate, updates.AdamUpdate, updates.MomentumUpdate)
def update_inputs(d: Draw, op: updates.Update) -> tuple[Tensor, ...]:
    """One tensor or two of different shapes, in the first update and in later ones."""
    shapes = [d.shape(1, 3) for _ in range(d.integer(1, 2))]
    moments = {"AdagradUpdate": (SQUARES,), "MomentumUpdate": (GRADIENTS,)}
    kinds = (("normal", "uniform"), GRADIENTS, *moments.get(op.name, (GRADIENTS, SQUARES)))
    return (
        d.literal(rate(d), d.dtype),
        d.literal(d.choose((0, *TIMES))),
        *(d.tensor(shape, *kind) for kind in kinds for shape in shapes),
    )
