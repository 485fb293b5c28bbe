"""d5test's own kernels: what is known without a compiler, and that they are right."""

import ctypes
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from packaging.version import Version

import d5test
from d5test.backends.base import Unsupported
from d5test.client.client import WorkerClient
from d5test.client.messages import Feed
from d5test.client.registry import installed, missing
from d5test.native import compiler, library
from d5test.native.backend import Kernels
from d5test.native.compiler import CompileError
from d5test.reference.operators import OPERATORS

HERE = Path(__file__).parent
KERNELS = Path(d5test.__file__).parent / "native" / "kernels"
UNOPTIMISED = f"{HERE / 'unoptimised.py'}:Unoptimised"
NAMES = {
    "Softmax", "LogSoftmax", "MatMul", "Gemm", "Conv", "ConvTranspose", "MaxPool", "AveragePool",
    "GlobalAveragePool", "BatchNormalization", "LayerNormalization", "SoftmaxCrossEntropyLoss",
    "Attention", "LSTM",
}  # fmt: skip
NEG = """
#include <d5test/operator.h>
template <typename T>
class Neg : public d5test::CustomOperator<T> {
public:
    void forward(const d5test::Inputs<T>& in, const d5test::Outputs<T>& out) override {
        for (int64_t i = 0; i < in[0].size(); ++i) out[0][i] = FACTOR * in[0][i];
    }
};
D5TEST_OPERATOR(Neg).input("x").output("y");
"""


def test_rows_are_known_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++")
    rows = Kernels(KERNELS).rows()
    assert set(rows) == NAMES
    assert {row.dtypes for row in rows.values()} == {("float64", "float32")}
    assert all(row.native for row in rows.values())


def test_without_a_compiler_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "native" in installed()
    monkeypatch.setenv("CXX", "/nowhere/g++")
    assert "native" not in installed()
    assert missing()["native"] == "install a compiler, Debian: apt install g++; or set CXX"
    with WorkerClient("native") as client, pytest.raises(Unsupported) as caught:
        client.about  # noqa: B018 (it is made now)
    assert str(caught.value).startswith("no compiler /nowhere/g++: install it")


def test_its_version_is_ours_and_the_compilers() -> None:
    with WorkerClient("native") as client:
        version = Version(client.about.version)
        assert set(client.about.rows) == NAMES
    assert version.public == d5test.__version__
    assert version.local == compiler.version()


def test_a_folder_with_flags_is_compiled_when_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "neg.cpp").write_text(NEG)
    kernels = Kernels(tmp_path, flags=("-O0",), facts={"Neg": {"outputs": 1}})
    row = kernels.rows()["Neg"]
    assert row.outputs == 1
    op = SimpleNamespace(name="Neg", attributes={})
    with pytest.raises(CompileError, match="FACTOR"):
        row.call(op, np.ones(3))
    right = Kernels(tmp_path, flags=("-O0", "-DFACTOR=-1")).rows()["Neg"]
    x = np.array([2.0, -3.0, 5.0])
    assert np.array_equal(right.call(op, x)[0], -x)


@pytest.fixture(scope="module")
def linear() -> library.Declared:
    return library.declared(compiler.library(KERNELS / "linear.cpp", flags=("-O0",)))["Gemm"]


@pytest.fixture(scope="module")
def convolutions() -> dict[str, library.Declared]:
    """As the backend has them: optimised."""
    return library.declared(compiler.library(KERNELS / "convolution.cpp"))


def whole(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Whole numbers, whose products and sums are exact in any order."""
    return random.integers(-9, 10, shape).astype(float)


def test_products_larger_than_every_block(linear: library.Declared) -> None:
    """Blocks have 256 rows by 512 columns by 256 terms; the suite's matrices have six."""
    random = np.random.default_rng(11)
    a, b, c = (whole(random, s) for s in ((259, 261), (530, 261), (530,)))
    op = OPERATORS["Gemm"](transB=1, alpha=0.5, beta=2.0)
    attributes = {"transB": 1, "alpha": 0.5, "beta": 2.0}
    outputs = linear.make(attributes, 64, guarded=False).forward([a, b, c])
    assert np.array_equal(outputs[0], op(a, b, c)[0])


@pytest.mark.parametrize("name", ["Conv", "ConvTranspose"])
def test_convolutions_larger_than_every_block_on_three_threads(
    convolutions: dict[str, library.Declared], name: str
) -> None:
    """More than 512 windows, 256 columns and 64 filters; the suite's have a few of each."""
    random = np.random.default_rng(13)
    wide = (66, 32, 3, 3) if name == "Conv" else (32, 66, 3, 3)
    x, w, b = (whole(random, s) for s in ((2, 32, 23, 29), wide, (66,)))
    attributes = {"strides": (1, 1), "pads": (1, 0, 1, 2), "dilations": (1, 2)}
    op, made = OPERATORS[name](**attributes), convolutions[name].make(attributes, 64, guarded=True)
    (y,) = op(x, w, b)
    dy = whole(random, y.shape)
    ctypes.CDLL("libgomp.so.1").omp_set_num_threads(3)
    try:
        got = made.forward([x, w, b]) + made.backward([dy], [x, w, b], [y])
    finally:
        ctypes.CDLL("libgomp.so.1").omp_set_num_threads(1)
    for found, expected in zip(got, (y, *op.vjp((dy,), (x, w, b), (y,))), strict=True):
        assert np.array_equal(found, expected)


def test_labels_and_indices_are_integers_in_the_worker() -> None:
    random = np.random.default_rng(17)
    x = random.standard_normal((2, 3, 5)).astype(np.float32)
    with WorkerClient(UNOPTIMISED) as client:
        (pooled,) = client.run(OPERATORS["MaxPool"](kernel_shape=(2,)), [Feed((x,))])
        assert pooled.outputs[1].dtype == np.int64
        assert np.array_equal(x.ravel()[pooled.outputs[1]], pooled.outputs[0])


@pytest.mark.nightly
def test_every_kernel_passes_the_suite(run_suite, tmp_path: Path) -> None:
    ran = run_suite(
        tmp_path, f"--operator={','.join(sorted(NAMES))}", "--check=forward,gradient,special",
        "--examples=6", "--dtype=float64,float32", backend=UNOPTIMISED,
    )  # fmt: skip
    assert ran.rc == 0, ran.text
    for name in NAMES:
        for dtype in ("float64", "float32"):
            assert f"test_gradient[{UNOPTIMISED}-{name}-{dtype}]" in ran.passed, ran.text
