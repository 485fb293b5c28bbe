"""Native operators in PyTorch: proper operators, compiled without a break, zero copy."""

import re
import subprocess
from pathlib import Path

import pytest

from d5test.native import compiler

pytest.importorskip("torch")

HERE = Path(__file__).parent
PRELUDE = """
import warnings; warnings.simplefilter("ignore")
import torch
from d5test.native.bridges import available
from d5test.native.bridges.torch import operator
ops = {one.name: one for one in available()}
def op(name, guarded=False):
    return getattr(getattr(torch.ops, "d5test_guarded" if guarded else "d5test"), name).default
import d5test.native.bridges.torch
generator = torch.Generator().manual_seed(3)
def normal(*shape, **how):
    return torch.randn(*shape, generator=generator, dtype=torch.float64, **how)
"""


@pytest.fixture
def torch_says(says):
    """Run lines where the bridge is loaded: what they print."""
    return lambda code: says(PRELUDE + code)


@pytest.mark.nightly
def test_it_is_an_operator_of_pytorchs(torch_says):
    said = torch_says("""
x = normal(2, 3, 5, requires_grad=True)
a, b = normal(3, 4, requires_grad=True), normal(4, 5, requires_grad=True)
cases = [("IPow", (x,), {"power": 3}), ("IPow", (x.detach().mT,), {}), ("Product", (a, b), {}),
         ("Thin", (a.detach(),), {"step": 3}), ("Relu", (x,), {})]
for name, inputs, attributes in cases:
    print(set(torch.library.opcheck(op(name), inputs, attributes).values()))
""")
    assert said.splitlines() == ["{'SUCCESS'}"] * 5


def test_values_and_gradients_are_the_operators(torch_says):
    said = torch_says("""
x = normal(4, 3).mT.requires_grad_()
y = op("IPow")(x, power=3)
dy = normal(3, 4)
(dx,) = torch.autograd.grad(y, x, dy)
print(torch.allclose(y, x**3, rtol=1e-14), torch.allclose(dx, dy * 3 * x**2, rtol=1e-14))
a, b = normal(3, 4, requires_grad=True), normal(4, 5, requires_grad=True)
dc = normal(3, 5)
da, db = torch.autograd.grad(op("Product")(a, b), (a, b), dc)
print(torch.allclose(da, dc @ b.T), torch.allclose(db, a.T @ dc))
print(op("IPow")(x.detach()).requires_grad, torch.autograd.gradcheck(op("IPow"), (x,)))
""")
    assert said.split() == ["True"] * 4 + ["False", "True"]


@pytest.mark.nightly
def test_compiled_whole_and_for_sizes_that_change(torch_says):
    said = torch_says("""
import torch._dynamo
def function(x):
    return op("IPow")(x.sin(), power=3).sum() + op("Product")(x, x.mT).sum()
compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=True)
for n in (3, 5, 8):
    x = normal(n, 4, requires_grad=True)
    y, z = compiled(x), function(x)
    (dy,), (dz,) = torch.autograd.grad(y, x), torch.autograd.grad(z, x)
    print(torch.allclose(y, z), torch.allclose(dy, dz))
print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
""")
    assert said.split() == ["True"] * 6 + ["1"]


@pytest.mark.nightly
def test_a_mode_and_the_profiler_see_both_directions(torch_says):
    said = torch_says("""
from torch.utils._python_dispatch import TorchDispatchMode
class Seen(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "d5test":
            print(function)
        return function(*args, **(kwargs or {}))
x, dy = normal(3, requires_grad=True), normal(3)
with Seen():
    torch.autograd.grad(op("IPow")(x, power=3), x, dy)
with torch.profiler.profile() as profile:
    torch.autograd.grad(op("IPow")(x, power=3), x, dy)
print(*sorted(event.key for event in profile.key_averages() if event.key.startswith("d5test::")))
""")
    assert said.splitlines() == [
        "d5test.IPow.default", "d5test.IPow_backward.default", "d5test::IPow d5test::IPow_backward"
    ]  # fmt: skip


@pytest.mark.nightly
def test_the_tape_keeps_only_what_the_derivative_reads(torch_says):
    said = torch_says("""
kept = []
with torch.autograd.graph.saved_tensors_hooks(lambda x: (kept.append(x), x)[1], lambda x: x):
    x = normal(2, requires_grad=True)
    y = op("IPow")(x, power=3)
    table, indices = normal(5, 3, requires_grad=True), torch.tensor([1, 4])
    z = op("Embedding")(table, indices)
print(*(any(k.data_ptr() == x.data_ptr() for k in kept) for x in (x, y, table, indices, z)))
(dtable,) = torch.autograd.grad(z, table, torch.ones_like(z))
print(dtable.sum(1).tolist())
""")
    assert said.splitlines() == ["True True True True False", "[0.0, 3.0, 0.0, 0.0, 3.0]"]


def test_no_second_derivative_is_said_and_not_zero(torch_says):
    said = torch_says("""
x = normal(3, requires_grad=True)
(dx,) = torch.autograd.grad(op("IPow")(x, power=3).sum(), x, create_graph=True)
try:
    torch.autograd.grad(dx.sum(), x)
except RuntimeError as error:
    print(error)
""")
    assert said == "derivative for d5test::IPow_backward is not implemented"


def test_nothing_is_copied(torch_says):
    said = torch_says("""
import ctypes, ctypes.util
x = torch.ones(1 << 20)
before = torch.ones(3)
with torch.profiler.profile(profile_memory=True) as profile:
    y = op("IPow")(x, power=2)
made = [e.nbytes() for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
print(sum(n for n in made if n > 0) == y.numel() * 4)
""")
    assert said == "True"


MIXED = """
from torch.nn.functional import embedding, layer_norm
table, indices = normal(5, 3, requires_grad=True), torch.tensor([[4, 0], [4, 1]])
x, bias = normal(4, 3, requires_grad=True), normal(3, requires_grad=True)
scale, shift = normal(3, requires_grad=True), normal(4, 3, requires_grad=True)
labels, weights, keep = torch.tensor([1, 0, 1, 1]), torch.tensor([7.0, 11.0]).double(), x > -1
"""


@pytest.fixture
def mixed_says(says):
    """As `torch_says`, with inputs of integers and booleans."""
    return lambda code: says(PRELUDE + MIXED + code)


def test_integers_masks_and_what_is_optional_are_pytorchs(mixed_says):
    said = mixed_says("""
cases = [("Embedding", (table, indices), {}), ("Embedding", (table, indices.int()), {}),
         ("MaskedSoftmax", (x,), {}), ("MaskedSoftmax", (x, keep), {}),
         ("MaskedSoftmax", (x, shift), {}), ("Normalised", (x, scale), {}),
         ("Normalised", (x, scale, bias), {"tells": 1}), ("Weighted", (x, labels), {}),
         ("Weighted", (x, labels, None, keep), {"picks": 1}),
         ("Weighted", (x, labels, weights.requires_grad_(), shift), {})]
for name, inputs, attributes in cases:
    print(set(torch.library.opcheck(op(name), inputs, attributes).values()))
""")
    assert said.splitlines() == ["{'SUCCESS'}"] * 10


def test_values_and_gradients_of_what_is_there(mixed_says):
    said = mixed_says("""
def same(ours, theirs, *inputs):
    ours, theirs = (y if isinstance(y, list) else [y] for y in (ours, theirs))
    dys = [normal(*y.shape) if y.is_floating_point() else None for y in ours]
    for y, z in zip(ours, theirs, strict=True):
        print(torch.allclose(y, z), y.dtype == z.dtype)
    pulled = [torch.autograd.grad([y for y in ys if y.requires_grad], inputs,
                                  [dy for dy in dys if dy is not None]) for ys in (ours, theirs)]
    for dx, dz in zip(*pulled, strict=True):
        print(torch.allclose(dx, dz))
same(op("Embedding")(table, indices), embedding(indices, table), table)
same(op("Embedding")(table.mT.contiguous().mT, indices.int()), embedding(indices, table), table)
same(op("MaskedSoftmax")(x, keep), x.masked_fill(~keep, -torch.inf).softmax(-1), x)
same(op("MaskedSoftmax")(x, shift), (x + shift).softmax(-1), x, shift)
same(op("Normalised")(x, scale), [layer_norm(x, (3,), scale, None, 0.125)], x, scale)
same(op("Normalised")(x, scale, bias, tells=1),
     [layer_norm(x, (3,), scale, bias, 0.125), x.mean(-1), x.argmax(-1)], x, scale, bias)
y, picked = op("Weighted")(x, labels, weights.requires_grad_(), picks=1)
print(torch.equal(picked, labels), not picked.requires_grad)
dx, dw = torch.autograd.grad(y.sum(), (x, weights), allow_unused=True)
print(dw is None, torch.allclose(dx, weights[labels][:, None].expand(4, 3)))
""")
    assert set(said.split()) == {"True"}


@pytest.mark.nightly
def test_they_are_compiled_whole(mixed_says):
    said = mixed_says("""
import torch._dynamo
def function(x, table, indices):
    y = op("MaskedSoftmax")(x, x > -2).sum() + (op("Embedding")(table, indices) ** 2).sum()
    return y + op("MaskedSoftmax")(x).square().sum()
compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=True)
for n in (6, 7, 8):
    inputs = normal(n, 4, requires_grad=True), table, torch.arange(n) % 5
    y, z = compiled(*inputs), function(*inputs)
    for dy, dz in zip(*(torch.autograd.grad(out, inputs[:2]) for out in (y, z))):
        print(torch.allclose(y, z), torch.allclose(dy, dz))
print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
""")
    assert said.split() == ["True"] * 12 + ["1"]


REFUSED = {
    'op("IPow")(torch.ones(3).half())': "IPow is compiled for float32",
    'op("Product")(normal(2, 3), normal(2, 3))': "Product: input b",
    'op("Unwritten", True)(normal(3))': "Unwritten.forward leaves element 2",
    'op("Thin")(normal(2, 3), step=0)': "Thin: a step is positive",
    'op("Relu")(torch.arange(3))': "Relu has no input of floating-point numbers",
    'op("Embedding")(normal(5, 3), normal(2))': "Embedding: indices is of integers, not Double",
    'op("Weighted")(normal(2, 3), torch.tensor([1, 0]), torch.ones(2).bool())': (
        "Weighted has inputs of one dtype: weights is of Double"
    ),
}
"""A call -> what it says when it refuses it."""


def test_what_is_refused_is_named(torch_says):
    tried = "try:\n    {}\nexcept {} as e:\n    print(*str(e).split())\n"
    kinds = dict.fromkeys(REFUSED, "NotImplementedError")
    kinds['op("Unwritten", True)(normal(3))'] = "RuntimeError"
    said = torch_says("".join(tried.format(*each) for each in kinds.items())).splitlines()
    for (line, words), refusal in zip(REFUSED.items(), said, strict=True):
        assert refusal.startswith(words), line


def test_the_suite_validates_it_inside_pytorch(suite):
    ran = suite(
        f"--native={HERE / 'faults.cpp'}", "--operator=Right,WrongGradient,WritesBehind",
        "--dtype=float64", "--examples=4", "--check=forward,gradient", backend="torch",
    )  # fmt: skip
    assert set(ran.failed) == {
        "test_forward[torch-WritesBehind-float64]",
        "test_gradient[torch-WritesBehind-float64]",
        "test_gradient[torch-WrongGradient-float64]",
    }, ran.text
    assert "test_gradient[torch-Right-float64]" in ran.passed


@pytest.mark.nightly
def test_the_suite_sees_it_compiled(suite):
    ran = suite(
        f"--native={HERE / 'faults.cpp'}", "--operator=Right", "--check=compiled",
        backend="torch-compiled",
    )  # fmt: skip
    assert ran.passed == {"test_compiled[torch-compiled-Right-float32]"}, ran.text


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["torch", "torch-compiled"])
def test_the_suite_validates_integers_masks_and_what_is_optional(
    mixed_judged_by_the_suite, backend
):
    mixed_judged_by_the_suite(backend, "compiled" if backend.endswith("compiled") else "gradient")


@pytest.mark.nightly
@pytest.mark.skipif(compiler.nvcc() is None, reason="there is no CUDA")
def test_the_half_for_gpus_compiles(tmp_path: Path) -> None:
    """Where PyTorch is without CUDA its headers lack one that its build writes."""
    from d5test.native.bridges.torch import SOURCE, toolchain

    written = tmp_path / "c10" / "cuda" / "impl" / "cuda_cmake_macros.h"
    written.parent.mkdir(parents=True)
    written.write_text("#define C10_CUDA_BUILD_SHARED_LIBS\n")
    said = ran(compiler.nvcc(), "--dryrun", "-c", tmp_path / "none.cu", "-o", tmp_path / "none.o")
    includes = re.findall(r"-I([^\s\"]+)", re.findall("INCLUDES=.*", said.stderr)[0])
    flags = [*toolchain()[0], *(f"-I{path}" for path in (tmp_path, *includes))]
    done = ran(*compiler.compiler(SOURCE), *flags, "-DD5TEST_CUDA", "-fsyntax-only", SOURCE)
    assert done.returncode == 0, done.stderr


def ran(*command: object) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=False)
