"""What runs in a call is told by name, and telling it changes nothing."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5test.backends.hlo import instructions
from d5test.client.client import InProcessClient
from d5test.client.messages import Feed
from d5test.reference.operators import Conv, MatMul
from tests.backends.tiny import Tiny

pytest.importorskip("torch")
pytest.importorskip("jax")

from d5test.backends.torch.kernels import named, printed

HERE = Path(__file__).parent
X = np.ones((2, 8, 9, 9), np.float32)
W = np.ones((16, 8, 3, 3), np.float32)


class Telling(Tiny):
    """It has names, or cannot tell."""

    names: Any = ("first", "first", 3, "x" * 1000, *range(100))

    def kernel_names(self, function: Any, inputs: Any) -> Any:
        (x,) = inputs
        assert np.array_equal(function(x), 2 * x)
        if self.names is None:
            raise ValueError("nobody knows")
        return self.names


def told(backend: str, op: Any, *inputs: Any, backward: bool = False, **more: Any) -> Any:
    """The names of kernels after a timing."""
    client = InProcessClient(backend)
    feed = Feed(inputs)
    if backward:
        (result,) = client.run(op, [feed])
        feed = Feed(inputs, result.outputs)
    client.start_timing(op, [feed], backward=backward, loops=1, **more)
    client.time_round()
    return client.stop_timing()


def test_names_are_few_short_and_text(ops: Any) -> None:
    timed = told(f"{__file__}:Telling", ops.Scale(), X)
    assert len(timed.kernels) == 64
    assert timed.kernels[:4] == ("first", "first", "3", "x" * 160)


def test_who_cannot_tell_loses_no_time(
    ops: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(f"{__name__}.Telling.names", None)
    client = InProcessClient(f"{HERE / 'tiny.py'}:Tiny")
    client._requests._make = Telling
    client.start_timing(ops.Scale(), [Feed((X,))], loops=1)
    client.time_round()
    timed = client.stop_timing()
    assert timed.kernels == ()
    assert np.array_equal(timed.outputs[0][0], 2 * X)
    assert "no kernels of Scale: ValueError: nobody knows" in capsys.readouterr().out


def test_a_backend_without_means_has_none(ops: Any) -> None:
    assert told(f"{HERE / 'tiny.py'}:Tiny", ops.Scale(), X).kernels == ()


def test_torch_tells_operators_and_primitives() -> None:
    forward = told("torch", Conv(), X, W).kernels
    assert forward[0] == "aten::convolution"
    assert any(name.startswith("convolution:") for name in forward)
    backward = told("torch", Conv(), X, W, backward=True).kernels
    assert {"aten::convolution", "aten::convolution_backward"} <= {*backward}
    assert all(len(name.split(":")) > 1 for name in backward)


@pytest.mark.nightly
def test_a_compiled_mode_of_torch_tells_what_the_libraries_run() -> None:
    names = told("torch-compiled", Conv(), X, W).kernels
    assert any(name.startswith("convolution:") for name in names)
    assert not any(name.startswith("aten::") for name in names)


def test_what_onednn_and_mkl_print_is_understood() -> None:
    lines = [
        "onednn_verbose,v1,info,cpu,runtime:OpenMP,nthr:1",
        "onednn_verbose,v1,primitive,info,template:operation,engine,primitive,exec_time",
        "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:f32,,16x8x3x3,0.003",
        "dnnl_verbose,exec,cpu,convolution,jit:avx512_core,forward_training,src:f32,,mb2,0.006",
        "onednn_verbose,exec,cpu",
        "MKL_VERBOSE oneMKL 2024.0 Update 2 Product build for Intel(R) 64 architecture",
        "MKL_VERBOSE SGEMM(N,N,64,64,64,0x7ffd,0x55d3) 143.08us CNR:OFF NThr:1",
        "a line of somebody's own",
    ]
    assert list(named(lines)) == ["reorder:jit:uni", "convolution:jit:avx512_core", "mkl:sgemm"]


def test_what_is_printed_is_caught_and_then_no_longer(capfd: pytest.CaptureFixture[str]) -> None:
    with suppress(ZeroDivisionError), printed() as lines:
        os.write(1, b"inside\n")
        1 / 0  # noqa: B018
    os.write(1, b"outside\n")
    assert lines == ["inside"]
    assert capfd.readouterr().out == "outside\n"


def test_jax_tells_primitives_and_compiled_instructions() -> None:
    a, b = np.ones((3, 5), np.float32), np.ones((5, 7), np.float32)
    assert told("jax", MatMul(), a, b).kernels == ("dot_general",)
    backward = told("jax", MatMul(), a, b, backward=True).kernels
    assert set(backward) == {"dot_general", "transpose"}
    assert "dot" in told("jax-compiled", MatMul(), a, b).kernels
    assert "dot" in told("jax-compiled", MatMul(), a, b, backward=True).kernels


def test_instructions_of_a_compiled_module() -> None:
    text = """HloModule jit_f

%fused (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  ROOT %negated = f32[2]{0} negate(%p)
}

ENTRY %main (x: f32[2,3], y: f32[3]) -> f32[2] {
  %x = f32[2,3]{1,0} parameter(0), metadata={op_name="x"}
  %c.1 = (f32[2]{0}, s8[0]{0}) custom-call(%x, %y), custom_call_target="__cublas$gemm"
  %g = f32[2]{0} get-tuple-element(%c.1), index=0
  %wrapped_fusion.2 = f32[2]{0} fusion(%g), kind=kLoop, calls=%fused
  ROOT %dot.4 = f32[2]{0} dot(%wrapped_fusion.2, %g), metadata={op_name="a(b)"}
}

%after () -> f32[] {
  %never = f32[] convolution(%a, %b)
}
"""
    assert list(instructions(text)) == [
        "custom-call:__cublas$gemm", "fusion:wrapped_fusion", "dot"
    ]  # fmt: skip
    assert list(instructions("nothing")) == []
