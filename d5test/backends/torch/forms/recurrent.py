"""Forms of recurrent layers: the modules."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from d5test.backends.base import Forms, Plan, Unsupported, padded, planned
from d5test.backends.torch.forms.calls import run
from d5test.backends.torch.recurrent import recurrence

forms = Forms()
PARAMETERS = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")


def by_module(cls: type[nn.Module], **options: Any) -> Callable[..., tuple[Tensor, ...]]:
    """What a module computes, with the arguments of the function of `torch._VF` that it calls."""

    def call(
        x: Tensor, starts: Any, weights: Sequence[Tensor], biased: bool, *rest: Any
    ) -> tuple[Tensor, ...]:
        _, _, _, both, _ = rest
        names = PARAMETERS[: 4 if biased else 2]
        every = [f"{name}{turn}" for turn in ("", "_reverse")[: 1 + both] for name in names]
        hidden = weights[1].shape[1]
        module = cls(x.shape[2], hidden, bias=biased, bidirectional=both, dtype=x.dtype, **options)
        parameters = dict(zip(every, weights, strict=True))
        y, last = run(module, x, starts, **parameters)
        return (y, *last) if isinstance(last, tuple) else (y, last)

    return call


@forms.add("RNN", "torch.nn.RNN")
@planned
def rnn(op: Any, *tensors: Tensor | None) -> Plan:
    f = op.activations[0] if op.activations else "Tanh"
    module = by_module(nn.RNN, nonlinearity="relu" if f == "Relu" else "tanh")
    return recurrence(op, module, (0,), (f,), padded(tensors, 6))


@forms.add("LSTM", "torch.nn.LSTM", flushes=True)
@planned
def lstm(op: Any, *tensors: Tensor | None) -> Plan:
    *without, peepholes = padded(tensors, 8)
    if peepholes is not None:
        raise Unsupported("torch's LSTM has no peepholes")
    return recurrence(op, by_module(nn.LSTM), (0, 2, 3, 1), ("Sigmoid", "Tanh", "Tanh"), without)


@forms.add("GRU", "torch.nn.GRU", attributes={"linear_before_reset": (1,)})
@planned
def gru(op: Any, *tensors: Tensor | None) -> Plan:
    return recurrence(op, by_module(nn.GRU), (1, 0, 2), ("Sigmoid", "Tanh"), padded(tensors, 6))
