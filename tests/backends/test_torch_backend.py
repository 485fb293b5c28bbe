"""The PyTorch backend beside its rows: layouts, gradients, compilations."""

from typing import Any

import numpy as np
import pytest

from d5test import processor
from d5test.backends.base import Unsupported
from tests.backends.torch_calls import BACKEND, Torch, X, attributes, ints, normal, put

torch = pytest.importorskip("torch")
TorchCompiled = pytest.importorskip("d5test.backends.torch").TorchCompiled


@pytest.mark.parametrize("layout", Torch.layouts)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "uint16", "int64", "bool"])
def test_layouts_hold_the_same_values(layout: str, dtype: str) -> None:
    array = np.repeat(normal(1, 3, 5, 7), 2, 0).astype(dtype)
    if layout == "expanded":
        array = np.broadcast_to(array.flat[0], array.shape)
    name = "bfloat16" if dtype == "uint16" else dtype
    x = BACKEND.put(array, name, layout)
    got, called = BACKEND.get(x)
    assert called == name
    assert got.dtype == array.dtype
    np.testing.assert_array_equal(got, array)
    BACKEND.refill(x, array[:, ::-1], name)
    np.testing.assert_array_equal(BACKEND.get(x)[0], array[:, ::-1])


def test_layouts_are_what_they_say() -> None:
    array = np.ones((2, 3, 5, 7), np.float32)
    strides = {layout: BACKEND.put(array, "float32", layout).stride() for layout in Torch.layouts}
    assert strides == {
        "contiguous": (105, 35, 7, 1),
        "transposed": (105, 35, 1, 5),
        "strided": (210, 70, 14, 2),
        "sliced": (120, 40, 8, 1),
        "offset": (105, 35, 7, 1),
        "broadcast": (0, 35, 7, 1),
        "channels_last": (105, 1, 21, 3),
        "expanded": (0, 0, 0, 0),
    }
    assert BACKEND.put(array, "float32", "offset").storage_offset() == 1
    with pytest.raises(Unsupported, match="equal slices"):
        put(X, "broadcast")
    with pytest.raises(Unsupported, match="one number"):
        put(X, "expanded")
    with pytest.raises(Unsupported, match="channels_last"):
        put(normal(3), "channels_last")


def test_gradients_follow_the_objects_that_were_given() -> None:
    x, y, dy = put(normal(3)), put(normal(3) + 1), put(normal(3) + 2)
    (z,), (dx,) = BACKEND.vjp(torch.mul, [x, x], [dy], [0])
    torch.testing.assert_close(dx, 2 * x * dy)
    assert not z.requires_grad
    assert not x.requires_grad

    def two(a: Any, b: Any) -> Any:
        return a * b, a + 1

    _, gradients = BACKEND.vjp(two, [x, y], [None, dy], [0, 1])
    torch.testing.assert_close(gradients[0], dy)
    assert gradients[1] is None
    assert BACKEND.vjp(two, [x, y], [None, None], [1])[1] == [None]
    _, gradients = BACKEND.vjp(two, [x, y], [dy, dy], [1, 0])
    torch.testing.assert_close(gradients, [x * dy, y * dy + dy])


def test_no_gradient_where_torch_has_none() -> None:
    op, row = attributes("BatchNormalization"), Torch.rows["BatchNormalization"]
    inputs = [put(x) for x in (X, normal(4), normal(4), normal(4), np.abs(normal(4)))]
    _, gradients = BACKEND.vjp(lambda *x: row.call(op, *x), inputs, [inputs[0]], range(5))
    assert [g is None for g in gradients] == [False, False, False, True, True]


def test_compiled_again_for_other_shapes_and_never_in_silence() -> None:
    backend = TorchCompiled()
    backend.reset()
    row, op = Torch.rows["Reshape"], attributes("Reshape")
    reshape = backend.compile(lambda *inputs: row.call(op, *inputs))
    x, shape = backend.put(normal(2, 3), "float64"), backend.put(ints(3, -1), "int64")
    assert reshape(x, shape).shape == (3, 2)
    assert backend.compilations() == 1
    assert reshape(x, shape).shape == (3, 2)
    assert backend.compilations() == 1
    backend.refill(shape, ints(1, -1), "int64")
    assert reshape(x, shape).shape == (1, 6)
    assert backend.compilations() == 2

    def refuses(x: Any) -> Any:
        raise Unsupported("no such operator")

    with pytest.raises(Unsupported, match="no such operator"):
        backend.compile(refuses)(x)
    with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
        [reshape(backend.put(normal(i + 2, 3), "float64"), shape) for i in range(20)]
    backend.reset()
    assert backend.compilations() == 0


@pytest.mark.parametrize(
    ("limit", "name"),
    [
        ("", "AVX512_FP16, AMX_BF16"),
        ("all", "AVX512_FP16, AMX_BF16"),
        ("AVX512_CORE_AMX", "AVX512_FP16, AMX_BF16"),
        ("AVX512_CORE_FP16", "AVX512_FP16"),
        ("AVX10_1_512", "AVX512_FP16"),
        ("AVX512_CORE_BF16", ""),
        ("AVX2", ""),
    ],
)
def test_the_device_s_name_has_the_instructions_that_onednn_may_use(
    monkeypatch: pytest.MonkeyPatch, limit: str, name: str
) -> None:
    monkeypatch.setattr(processor, "flags", lambda: ["avx512_fp16", "amx_bf16", "avx2"])
    if limit:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    else:
        monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    capability = torch.backends.cpu.get_cpu_capability()
    words = ", ".join(filter(None, (capability, name)))
    assert BACKEND.describe_device() == f"cpu ({words})"


def test_a_deterministic_mode_says_so_and_refuses_what_is_not() -> None:
    from d5test.backends.torch import TorchDeterministic

    before = torch.are_deterministic_algorithms_enabled()
    try:
        backend = TorchDeterministic()
        assert torch.are_deterministic_algorithms_enabled()
        x = backend.put(np.zeros(4, np.float32), "float32")
        with pytest.raises(RuntimeError) as refused:
            x.put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))
        assert backend.refusal(refused.value) == (
            "put_ does not have a deterministic implementation, but you set "
            "'torch.use_deterministic_algorithms(True)'"
        )
        assert backend.refusal(RuntimeError("shapes do not fit")) == ""
        assert "use_deterministic_algorithms(True)" in backend.template.imports
    finally:
        torch.use_deterministic_algorithms(before)
