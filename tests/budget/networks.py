"""A network through the executor against the same network as a `torch.nn.Module`.

The worker's own program runs in this process, on the same values as the module by hand: one
inference with backprop a call, gradients of all parameters.
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from d5test.client.client import InProcessClient
from d5test.networks.executor import Executor
from d5test.networks.zoo import resnet18
from tests.budget.measure import AGAIN, OURS, THEIRS, Clock, Line, in_turn, ratio

BATCH, SIZE = 8, 64
RATIO = 1.03
WORDS = {
    "conv.weight": "conv_w",
    "norm.weight": "norm_scale",
    "norm.bias": "norm_shift",
    "scores.weight": "scores_w",
    "scores.bias": "scores_b",
}
"""What the end of a parameter's name is here."""


def lines() -> Iterator[Line]:
    """ResNet-18, forward and backward, through the executor over by hand."""
    import torch

    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    inputs = {
        "x": random.standard_normal((BATCH, 3, SIZE, SIZE)).astype(np.float32),
        "labels": random.integers(0, 10, BATCH),
    }
    network = resnet18()
    client = InProcessClient("torch")
    executor = Executor(client, network)
    _, gradients = executor.inference_and_backprop(inputs, "loss")
    module = by_hand(network.fetch())
    x, labels = torch.from_numpy(inputs["x"]), torch.from_numpy(inputs["labels"])

    def hand() -> Any:
        module.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(module(x), labels)
        loss.backward()
        return loss

    hand()
    if different := differing(gradients, module):
        raise AssertionError(f"both sides compute the same, and differ in {different}")
    executor.start_timing([inputs], "loss")
    timing = client._requests.timing
    arms = {OURS: lambda: timing.round()[1], THEIRS: seconds(hand), AGAIN: seconds(hand)}
    times = in_turn(arms, rounds=101, seconds=90, least=20)
    executor.stop_timing()
    what = f"ResNet-18 forward + backward at batch {BATCH}, {SIZE} x {SIZE}, executor / nn.Module"
    yield ratio(what, times, RATIO)


def seconds(call: Any) -> Clock:
    """CPU seconds of one call."""

    def timed() -> float:
        start = time.process_time()
        call()
        return time.process_time() - start

    return timed


def ours(name: str) -> str:
    """The name here of a parameter of the module."""
    for theirs, word in WORDS.items():
        if name.endswith(theirs):
            return (name.removesuffix(theirs) + word).replace(".", "_")
    raise KeyError(name)


def differing(gradients: Any, module: Any) -> list[str]:
    """The parameters whose gradients do not agree, by norm, to half the digits of float32."""
    found = []
    for name, parameter in module.named_parameters():
        here, there = gradients[ours(name)], parameter.grad.numpy()
        here = here.T if name == "scores.weight" else here
        if np.linalg.norm(here - there) > np.finfo(np.float32).eps ** 0.5 * np.linalg.norm(there):
            found.append(name)
    return found


def by_hand(parameters: dict[str, np.ndarray]) -> Any:
    """ResNet-18 as anybody would write it, with these parameters."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Unit(nn.Module):
        """A convolution and its batch normalisation."""

        def __init__(self, c_in: int, c: int, kernel: int, stride: int) -> None:
            super().__init__()
            self.conv = nn.Conv2d(c_in, c, kernel, stride, kernel // 2, bias=False)
            self.norm = nn.BatchNorm2d(c, track_running_stats=False)

        def forward(self, x: Any) -> Any:
            return self.norm(self.conv(x))

    class Block(nn.Module):
        """Two units and a way around them."""

        def __init__(self, c_in: int, c: int, stride: int) -> None:
            super().__init__()
            self.a, self.b = Unit(c_in, c, 3, stride), Unit(c, c, 3, 1)
            self.c = Unit(c_in, c, 1, stride) if c != c_in else nn.Identity()

        def forward(self, x: Any) -> Any:
            return F.relu(self.b(F.relu(self.a(x))) + self.c(x))

    class ResNet18(nn.Module):
        """The whole."""

        def __init__(self) -> None:
            super().__init__()
            self.stem = Unit(3, 64, 7, 2)
            c_in = 64
            for stage, c in enumerate((64, 128, 256, 512), 1):
                for block in range(2):
                    stride = 2 if stage > 1 and block == 0 else 1
                    self.add_module(f"stage{stage}_{block}", Block(c_in, c, stride))
                    c_in = c
            self.scores = nn.Linear(512, 10)

        def forward(self, x: Any) -> Any:
            x = F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
            for stage in range(1, 5):
                for block in range(2):
                    x = getattr(self, f"stage{stage}_{block}")(x)
            return self.scores(F.adaptive_avg_pool2d(x, 1).flatten(1))

    module = ResNet18()
    values = {name: torch.from_numpy(parameters[ours(name)]) for name in module.state_dict()}
    values["scores.weight"] = values["scores.weight"].T
    module.load_state_dict(values)
    return module
