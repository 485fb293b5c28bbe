"""Forms of products of matrices, and of attention."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from d5test.backends.base import Always, Forms, Plan, Unsupported, planned
from d5test.backends.torch.forms.calls import HALVES, autocast, into, run, with_buffers
from d5test.backends.torch.linear import attention, gemm
from d5test.dtypes import WHOLE

forms = Forms()
forms.same(
    "MatMul",
    {
        "Tensor @ Tensor": lambda a, b: a @ b,
        "Tensor.matmul": Tensor.matmul,
        "torch.linalg.matmul": torch.linalg.matmul,
    },
)


def of_one_batch(function: Plan, op: Any, a: Tensor, b: Tensor) -> Plan:
    """`function` does not broadcast."""
    if a.shape[:-2] != b.shape[:-2]:
        raise Unsupported("it takes tensors of one batch")
    return function


def to_last(function: Plan, op: Any, a: Tensor, b: Tensor) -> Plan:
    """`function` multiplies the last axis of any `a` with the last axis of a matrix."""
    return lambda a, b: function(a, b.mT)


def zeros(a: Tensor, b: Tensor) -> Tensor:
    """What to add a product to, in place."""
    return a.new_zeros((*a.shape[:-1], *b.shape[1:]))


def of_halves(add: Plan, a: Tensor, b: Tensor) -> Tensor:
    """The product as the sum of those of two halves of the inner axis."""
    if a.shape[1] % 2 or not a.shape[1]:
        raise Unsupported("half of the inner axis is no whole number")
    halves = (torch.stack(t.tensor_split(2, axis)) for t, axis in ((a, 1), (b, 0)))
    result: Tensor = add(zeros(a, b), *halves)
    return result


for _title, _function, _left, _right in (
    ("torch.mm", torch.mm, 2, 2),
    ("torch.bmm", torch.bmm, 3, 3),
    ("torch.mv", torch.mv, 2, 1),
    ("torch.dot", torch.dot, 1, 1),
    ("torch.vdot", torch.vdot, 1, 1),
    ("torch.linalg.vecdot", torch.linalg.vecdot, 1, 1),
    ("Tensor.mm", Tensor.mm, 2, 2),
    ("Tensor.bmm", Tensor.bmm, 3, 3),
    ("Tensor.mv", Tensor.mv, 2, 1),
    ("Tensor.dot", Tensor.dot, 1, 1),
    ("Tensor.vdot", Tensor.vdot, 1, 1),
    ("torch.addmv", lambda a, b: torch.addmv(a.new_zeros(()), a, b), 2, 1),
    ("torch.addmm", lambda a, b: torch.addmm(a.new_full((), torch.nan), a, b, beta=0), 2, 2),
    ("torch.addmv_", lambda a, b: torch.addmv_(zeros(a, b), a, b), 2, 1),
    ("Tensor.addmv", lambda a, b: zeros(a, b).addmv(a, b), 2, 1),
    ("Tensor.addmv_", lambda a, b: zeros(a, b).addmv_(a, b), 2, 1),
    ("torch.addbmm", partial(of_halves, torch.addbmm), 2, 2),
    ("Tensor.addbmm", partial(of_halves, Tensor.addbmm), 2, 2),
    ("Tensor.addbmm_", partial(of_halves, Tensor.addbmm_), 2, 2),
    ("torch.linalg.multi_dot", lambda a, b: torch.linalg.multi_dot((a, b)), 2, 2),
    ("torch.tensordot", lambda a, b: torch.tensordot(a, b, 1), 2, 2),
    ("torch.einsum", lambda a, b: torch.einsum("ik,kj->ij", a, b), 2, 2),
    ("torch.baddbmm", lambda a, b: torch.baddbmm(a.new_full((), torch.nan), a, b, beta=0), 3, 3),
):
    forms.add("MatMul", _title, where={"rank0": _left, "rank1": _right})(
        planned(partial(of_one_batch, _function))
    )
for _title, _function in (
    ("torch.nn.functional.linear", F.linear),
    ("torch.inner", torch.inner),
    ("Tensor.inner", Tensor.inner),
):
    forms.add("MatMul", _title, where={"rank1": 2})(planned(partial(to_last, _function)))


def product(op: Any, a: Tensor, b: Tensor, *, strided: bool) -> Tensor:
    # the shape alone: on this device nothing is computed
    shape = torch.matmul(a.to("meta"), b.to("meta")).shape
    return into(lambda out: torch.matmul(a, b, out=out), shape, a, strided)


with_buffers(forms, "MatMul", "torch.matmul", product)

LINEAR = {"transA": (0,), "transB": (1,), "alpha": (1.0,), "beta": (1.0,)}
PLAIN = {"transA": (0,), "transB": (0,)}
ADDED = {"present2": True}


def biased(function: Plan, op: Any, x: Tensor, w: Tensor, b: Tensor) -> Plan:
    """`function` takes a bias for each output."""
    if b.shape != w.shape[:1]:
        raise Unsupported("a linear layer has one bias for each output")
    return function


def unbiased(function: Plan, op: Any, x: Tensor, w: Tensor, b: None = None) -> Plan:
    """`function` takes no bias."""
    return lambda x, w, b=None: function(x, w)


def layer(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """The module, with its parameters replaced."""
    module = nn.Linear(w.shape[1], w.shape[0], bias=b is not None, dtype=x.dtype, device="meta")
    return run(module, x, weight=w, bias=b)


for _title, _function in (("torch.nn.functional.linear", F.linear), ("torch.nn.Linear", layer)):
    forms.add("Gemm", _title, attributes=LINEAR, where={"rank2": 1})(
        planned(partial(biased, _function))
    )
    forms.add("Gemm", f"{_title}(bias=None)", attributes=LINEAR, where={"present2": False})(
        planned(partial(unbiased, _function))
    )


def scaled(function: Plan, op: Any, a: Tensor, b: Tensor, c: Tensor) -> Plan:
    """`function(c, a, b, beta=, alpha=)` adds c."""
    return lambda a, b, c: function(c, a, b, beta=op.beta, alpha=op.alpha)


def added_in_place(function: Plan, c: Tensor, a: Tensor, b: Tensor, **factors: float) -> Tensor:
    if c.shape != (*a.shape[:-1], b.shape[-1]):
        raise Unsupported("in place, c has the shape of the product")
    result: Tensor = function(c.clone(), a, b, **factors)
    return result


def batched(function: Plan, c: Tensor, a: Tensor, b: Tensor, **factors: float) -> Tensor:
    """`function` of one batch."""
    result: Tensor = function(c, a[None], b[None], **factors)
    return result.squeeze(0)


def batched_in_place(c: Tensor, a: Tensor, b: Tensor, **factors: float) -> Tensor:
    return added_in_place(Tensor.baddbmm_, c[None], a, b, **factors)


for _title, _function in (
    ("Tensor.addmm", Tensor.addmm),
    ("Tensor.addmm_", partial(added_in_place, Tensor.addmm_)),
    ("torch.baddbmm", partial(batched, torch.baddbmm)),
    ("Tensor.baddbmm", partial(batched, Tensor.baddbmm)),
    ("Tensor.baddbmm_", partial(batched, batched_in_place)),
):
    forms.add("Gemm", _title, attributes=PLAIN, where=ADDED)(planned(partial(scaled, _function)))


def summed(op: Any, a: Tensor, b: Tensor, c: Tensor, *, strided: bool) -> Tensor:
    shape, factors = (a.shape[0], b.shape[1]), {"beta": op.beta, "alpha": op.alpha}
    return into(lambda out: torch.addmm(c, a, b, **factors, out=out), shape, a, strided)


with_buffers(forms, "Gemm", "torch.addmm", summed, attributes=PLAIN, where=ADDED)


@forms.add("Attention", "scaled_dot_product_attention by SDPBackend.MATH", outputs=1)
def by_formula(op: Any, *inputs: Tensor | None) -> Any:
    """What torch's fused kernels are to agree with."""
    with sdpa_kernel(SDPBackend.MATH):
        return attention(op, *inputs)(*inputs)


for _operator, _plan in (("MatMul", Always(torch.matmul)), ("Gemm", gemm)):
    forms.add(_operator, "torch.autocast", dtypes=HALVES, arithmetic="S", promotes=WHOLE)(
        planned(partial(autocast, _plan))
    )


forms.same(
    "Det", {"torch.det": torch.det, "Tensor.det": Tensor.det}, dtypes=("float64", "float32")
)
