"""What whoever writes an engine reads after a slip."""

import pytest

from tests.engines.test_planted import suite


@pytest.fixture(scope="module")
def said() -> str:
    names = ("OtherAxis", "OtherFeature", "NoStart", "NoNorm")
    asked = ",".join(f"tests.engines.slips:{name}" for name in names)
    return suite(f"--engine={asked}", "-k", "mlp-clipped-float32").stdout


@pytest.mark.parametrize(
    "words",
    [
        "unknown axis in `axes` 'data': known: dp, zero, fsdp, tp, pp",
        "unknown feature in `lacks` 'accumulation': did you mean accumulate?",
        "NotImplementedError: NoStart has no start(world): see docs/engines.md",
        "looks like  the engine does not set `norm`",
        "NoNorm: it is not where the sequential run is on 4 threads",
    ],
)
def test_a_slip_is_named(said: str, words: str) -> None:
    assert words in said, said
