"""A reproducer tests the claim that failed: still there while the backend breaks it, else gone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from d5test.case import Case, Tensor
from d5test.checks import CHECKS, Fault
from d5test.reference.operators import OPERATORS
from d5test.reproducer import write
from tests.reproducer.strangers import run

RIGHT = "return good"
PULLED = 'gradient=""'


@dataclass(frozen=True)
class Wrong:
    """What is wrong with a stranger's Add, which check says so, and by which fault."""

    kind: str
    check: str
    call: str = RIGHT
    slopes: str = ""
    row: str = 'gradient="none"'
    facts: str = ""
    dtype: str = "float32"
    mended: tuple[str, str] = ("", "")
    said: str = "still there"

    def fixed(self, text: str) -> str:
        """The reproducer as it would be of a backend that is right."""
        for wrong, right in ((self.call, RIGHT), (self.slopes, "pass"), self.mended):
            assert wrong in text
            text = text.replace(wrong, right) if wrong not in ("", right) else text
        return text.replace("PATIENCE = 5", "PATIENCE = 0.1")

    def case(self) -> Case:
        """A sum of two matrices; of zeros where their signs are asked for."""
        if self.check == "accuracy":
            zeros = Tensor((2, 3), self.dtype, data=(0.0,) * 6)
            return Case(OPERATORS["Add"](), (zeros, zeros), 7)
        return Case(OPERATORS["Add"](), (Tensor((2, 3), self.dtype),) * 2, 7)


STRIDED = """layouts = ("contiguous", "transposed")
    def put(self, array: Any, dtype: str, layout: str = "contiguous") -> Any:
        return np.array(array, order="F" if layout == "transposed" else "C")
"""
SPENT = """def vjp_again(self, function: Any, inputs: Any, grads: Any, wanted: Any) -> Any:
        outputs, slopes = self.vjp(function, inputs, grads, wanted)
        return outputs, [dx * np.float32(0.5) for dx in slopes]
"""
NARROW = "return (good.astype(np.float64) * (1 + 2.0**-8)).astype(good.dtype)"
COUNTING = """mode = "compiled"
    def compile(self, function: Any) -> Any:
        def counted(*inputs: Any) -> Any:
            STATE["compiled"] = 0
            return function(*inputs)
        return counted

    def compilations(self) -> Any:
        return STATE.get("compiled", 0)
"""
CASES = {
    "another value": Wrong("value", "forward", "return good * np.float32(1.001)"),
    "a value with a gradient": Wrong(
        "value", "gradient", slopes="outputs = outputs + 1", row=PULLED
    ),
    "results with a gradient": Wrong(
        "shape", "gradient", slopes="outputs = (outputs, outputs)", row=PULLED,
        said="still there: call 0: 2 outputs, want 1 ",
    ),
    "a shape with a gradient": Wrong(
        "shape", "gradient", slopes="outputs = outputs[None]", row=PULLED,
        said="still there: call 0, output 0: shape (1, 2, 3), want (2, 3) ",
    ),
    "a dtype with a gradient": Wrong(
        "dtype", "gradient", slopes="outputs = outputs.astype(np.float64)", row=PULLED,
        said="still there: call 0, output 0: dtype float64, want float32 ",
    ),
    "a shape in a later call": Wrong(
        "shape", "compiled",
        "return good if STATE.setdefault('rows', len(x)) == len(x) else good[None]",
        facts=COUNTING.replace('"compiled"] = 0', '"compiled"] = 1'),
        said="still there: call 1, output 0: shape (1, 17, 3), want (17, 3) ",
    ),
    "two results": Wrong("shape", "forward", "return good, good"),
    "no result": Wrong("shape", "forward", "return ()"),
    "None": Wrong("row", "forward", "return None"),
    "a string": Wrong("row", "forward", "return 'sum'"),
    "too many": Wrong("row", "forward", "return good, good", row="outputs=1"),
    "a shape": Wrong("shape", "forward", "return good[None]"),
    "a dtype": Wrong("dtype", "forward", "return good.astype(np.float64)"),
    "an exception": Wrong("exception", "forward", "raise RuntimeError('no')"),
    "a death": Wrong("crash", "forward", "os.kill(os.getpid(), signal.SIGSEGV); return good"),
    "a gradient": Wrong("gradient", "gradient", slopes="slopes[1] *= 2", row=PULLED),
    "too few gradients": Wrong("row", "gradient", slopes="slopes.pop()", row=PULLED),
    "no gradient": Wrong("gradient", "gradient", slopes="slopes[0] = None", row=PULLED),
    "gradient of a string": Wrong("row", "gradient", slopes="slopes[0] = ''", row=PULLED),
    "gradient's shape": Wrong(
        "shape", "numerical_gradient", slopes="slopes[0] = slopes[0][None]", row=PULLED,
        dtype="float64",
    ),
    "slope": Wrong(
        "gradient", "numerical_gradient", slopes="slopes[0] *= 2", row=PULLED, dtype="float64"
    ),
    "an upstream gradient": Wrong("mutated", "untouched", slopes="grads[0][...] = 1", row=PULLED),
    "an input": Wrong("mutated", "untouched", "np.add(x, 1, out=x); return good"),
    "an output": Wrong(
        "overwritten", "untouched",
        "out = STATE.setdefault('out', good); out[...] = good; return out",
    ),
    "an old result": Wrong("cached", "no_caching", "return STATE.setdefault(id(x), good)"),
    "a random result": Wrong(
        "nondeterministic", "determinism", "return good + np.float32(STATE['calls'])"
    ),
    "a random gradient": Wrong(
        "nondeterministic", "determinism", slopes="slopes[0] *= STATE['calls']", row=PULLED
    ),
    "a second pass": Wrong(
        "nondeterministic", "determinism", row=PULLED, facts=SPENT, mended=("0.5", "1.0")
    ),
    "a layout": Wrong(
        "layout", "layout", "return good + (not (x.flags.c_contiguous and y.flags.c_contiguous))",
        facts=STRIDED,
    ),
    "a batch": Wrong("batch", "batch", "return good + (len(x) > 16)"),
    "a NaN": Wrong("special", "special", "return np.where(np.isnan(good), 0, good)"),
    "a spread NaN": Wrong("special", "special", "return good + 0 * good.sum()"),
    "a zero": Wrong("sign of zero", "accuracy", "return np.where(good == 0, -good, good)"),
    "an arithmetic": Wrong(
        "arithmetic", "low_precision", "return np.nextafter(good, np.float16(np.inf))",
        row='gradient="none", arithmetic="F"', dtype="float16",
    ),
    "declared": Wrong(
        "declared", "declared_dtypes", "raise RuntimeError('no')", dtype="float16"
    ),
    "undeclared": Wrong(
        "declared", "declared_dtypes", row='gradient="none", dtypes=("float32",)',
        dtype="float16", mended=("return good", "raise RuntimeError('no')"),
    ),
    "nothing compiled": Wrong(
        "not compiled", "compiled", facts=COUNTING, mended=('"compiled"] = 0', '"compiled"] = 1')
    ),
}  # fmt: skip


@pytest.fixture(params=CASES)
def wrong(request: pytest.FixtureRequest) -> Wrong:
    return CASES[request.param]


def test_the_claim_that_failed_is_tested(wrong: Wrong, stranger: Any, tmp_path: Path) -> None:
    client = stranger(wrong.call, wrong.slopes, wrong.row, wrong.facts)
    with pytest.raises(Fault) as caught:
        CHECKS[wrong.check].run(client, wrong.case())
    assert caught.value.kind == wrong.kind
    path = write(caught.value, client.about, tmp_path / "out")
    there = run(path)
    assert there.returncode == 1, there.stdout + there.stderr
    assert there.stdout.splitlines()[-1].startswith(wrong.said)
    text = path.read_text()
    path.write_text(wrong.fixed(text))
    gone = run(path)
    assert gone.returncode == 0, gone.stdout + gone.stderr
    assert gone.stdout.splitlines()[-1].startswith("gone")
    path.write_text(text.replace("import numpy as np", "import no_framework as np"))
    unable = run(path)
    assert unable.returncode == 2
    assert unable.stdout.splitlines()[-1].startswith("cannot be tried: ModuleNotFoundError")
