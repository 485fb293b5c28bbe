"""A rule that torch runs block by block takes, bit for bit, the steps that it takes at once."""

import pytest

from d5test.reference.optimizers import OPTIMIZERS
from d5test.worker.bound import OperatorView

torch = pytest.importorskip("torch")
LAYOUTS = {
    "a block and a part": lambda: torch.randn(300, 700),
    "a scalar": lambda: torch.randn(()),
    "nothing": lambda: torch.randn(0, 4),
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "transposed": lambda: torch.randn(3, 5).T,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_blocks_are_the_whole(name: str) -> None:
    from d5test.backends.torch.optimizers import TorchReference

    torch.manual_seed(0)
    rule = OPTIMIZERS[name]()
    parameters = {layout: make() for layout, make in LAYOUTS.items()}
    given = {layout: w.clone() for layout, w in parameters.items()}
    updater = TorchReference(OperatorView(name, vars(rule)), parameters)
    state = rule.start(torch, given)
    expected = given
    for step in range(4):
        if step == 2:  # as after a checkpoint
            updater.restore(*updater.state())
        gradients = {layout: torch.randn_like(w) for layout, w in given.items()}
        updater.step(gradients)
        expected, state = rule.update(torch, expected, gradients, state)
        t, slots = updater.state()
        assert t == state.t
        for layout, w in expected.items():
            assert torch.equal(updater.parameters[layout], w), layout
            assert all(map(torch.equal, slots[layout], state.slots[layout])), layout
    assert all(torch.equal(w, given[layout]) for layout, w in parameters.items())
