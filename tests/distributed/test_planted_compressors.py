"""Wrong compressors are found, by the check that is meant to; right ones are never accused."""

import re
from itertools import islice

import pytest

from d5test.distributed.checks import table
from d5test.distributed.communicator import Virtual
from d5test.distributed.compression import COMPRESSION, asked, made
from d5test.names import BadName
from d5test.outcome.fault import Fault
from d5test.reference.compressors import COMPRESSORS
from tests.nightly import thinned

CASES = 25
PLACE = "tests.distributed.wrong_compressors:"
RIGHT = ("Third", "Low", "Odd", "OneColumn", "Recovering", "Shifted")


def first_fault(name: str, check: str, dtype: str = "float32", cases: int = CASES) -> Fault | None:
    row, comm = COMPRESSION[check], Virtual()
    assert row.asks(made(name))
    for case in islice(table(row, name, comm.sizes, dtype, 0), cases):
        try:
            row.run(comm, case)
        except Fault as fault:
            return fault
    return None


@pytest.mark.parametrize(
    ("name", "check", "kind"),
    [
        ("ResidualDropped", "telescoping", "value"),
        ("ResidualUnused", "telescoping", "value"),
        ("ResidualTwice", "telescoping", "value"),
        ("ToNearest", "unbiased", "value"),
        ("Downwards", "unbiased", "value"),
        ("NarrowWords", "unbiased", "value"),
        ("IndicesOnly", "faithful", "value"),
        ("IndicesOnly", "wire", "volume"),
        ("TwiceAsLarge", "wire", "volume"),
        ("TwiceAsLarge", "mean", "volume"),
        ("NotShorter", "wire", "volume"),
        ("OtherBucket", "faithful", "value"),
        ("NormOfAll", "faithful", "value"),
        ("SignLost", "faithful", "value"),
        ("SignLost", "mean", "value"),
        ("NotOrthogonal", "projection", "value"),
        ("Stale", "projection", "value"),
        ("OwnResidual", "telescoping", "value"),
        ("SharedState", "independence", "state"),
        ("SharedByAll", "independence", "state"),
        ("SharedState", "telescoping", "value"),
        ("Unseeded", "independence", "state"),
        ("NotANumberLost", "special", "special"),
        ("Unrefused", "special", "accepted"),
        ("RefusedAndRemembered", "special", "special"),
        ("ZeroByZero", "special", "special"),
        ("SquaresOverflow", "special", "value"),
        ("Overwrites", "faithful", "mutated"),
        ("Widened", "faithful", "shape"),
        ("NoBytes", "faithful", "payload"),
        ("Raises", "faithful", "exception"),
        ("NoFormula", "wire", "exception"),
        ("OneError", "faithful", "shape"),
        ("OwnExactly", "mean", "disagreement"),
        ("OneRankTooFew", "mean", "value"),
        ("Uncompressed", "mean", "volume"),
    ],
)
def test_it_is_found(name: str, check: str, kind: str) -> None:
    fault = first_fault(PLACE + name, check)
    assert fault is not None
    assert fault.kind == kind, fault.headline
    assert f"compressor='{PLACE}{name}'" in fault.headline


@pytest.mark.parametrize("check", COMPRESSION)
@pytest.mark.parametrize("dtype", thinned(["float32", "float64"]))
def test_nothing_is_found_in_what_is_right(check: str, dtype: str) -> None:
    row = COMPRESSION[check]
    for name in asked(row, (*COMPRESSORS, *(PLACE + name for name in RIGHT))):
        cases = 4 if check == "unbiased" else CASES  # of hundreds of encodings each
        assert first_fault(name, check, dtype, cases) is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("topq", "unknown compressor 'topq': did you mean topk?"),
        ("numpy:ndarray", "is not a subclass of d5test.reference.compressors.Compressor"),
        (PLACE + "Unmade", "cannot be made: TypeError: "),
    ],
)
def test_a_name_that_is_no_compressor_is_one_line(name: str, said: str) -> None:
    with pytest.raises(BadName, match=re.escape(said)):
        made(name)


def test_an_exception_is_told_with_its_line() -> None:
    fault = first_fault(PLACE + "Raises", "faithful")
    assert fault is not None
    assert fault.details["message"].startswith("ZeroDivisionError: ")
    assert " in encode" in fault.details["message"]


@pytest.mark.parametrize("name", ["ToNearest", "Downwards", "NarrowWords"])
def test_a_bias_is_within_the_error_that_is_claimed(name: str) -> None:
    """So only `unbiased` can find it."""
    assert first_fault(PLACE + name, "faithful") is None
