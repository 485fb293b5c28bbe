"""How accurate a function is, over inputs that are the same in every run: errors and a grade."""

from __future__ import annotations

from dataclasses import dataclass

from d5test.metric import Metric, Sample

LARGEST = Metric("largest error", "ULP", gate="exact")
MEAN = Metric("mean error", "ULP", gate="exact")
ROUNDED = Metric("correctly rounded", "1", better="higher", gate="exact")
MEANINGFUL = 1e16
"""An error beyond it, in ULPs, leaves no digit right in any dtype."""


def ulps(error: float) -> str:
    """An error in ULPs, in few digits."""
    return f"{error:.4g}" if error < MEANINGFUL else f"over {MEANINGFUL:.0e}"


@dataclass(frozen=True)
class Grade:
    """How a function that has a stable form is computed.

    ratio  the largest error over the bar of that form, where the function is right
    at     the input (the two inputs) where that is
    wrong  whether it is wrong elsewhere, known failures included
    """

    ratio: float = 0.0
    at: tuple[float, ...] = ()
    wrong: bool = False

    @property
    def name(self) -> str:
        """`naive` where a result is right by ONNX's formula only, else `wrong` or `stable`."""
        return "naive" if self.ratio > 1 else "wrong" if self.wrong else "stable"

    def __add__(self, other: Grade) -> Grade:
        """Over the inputs of both."""
        worse = other if other.ratio > self.ratio else self
        return Grade(worse.ratio, worse.at, self.wrong or other.wrong)


@dataclass(frozen=True)
class Accuracy:
    """Errors in ULPs over fixed inputs.

    inputs   how many were counted
    largest  the largest error; infinite where a NaN stands for a number
    at       the input (the two inputs) where that is, with what was got and the exact value there
    total    the sum of the errors that are finite
    rounded  how many results are the number nearest to the exact value; `None` where the
             reference cannot tell: in float64, unless it is correctly rounded itself
    """

    inputs: int = 0
    largest: float = 0.0
    at: tuple[float, ...] = ()
    got: float = 0.0
    want: float = 0.0
    total: float = 0.0
    rounded: int | None = 0

    @property
    def mean(self) -> float:
        """The mean of the errors that are finite."""
        return self.total / max(self.inputs, 1)

    @property
    def share_rounded(self) -> float | None:
        """The share of the results that are correctly rounded."""
        return None if self.rounded is None else self.rounded / max(self.inputs, 1)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """What two runs are compared by, exactly: the inputs are not drawn."""
        share = self.share_rounded
        rounded = () if share is None else (Sample(ROUNDED, (share,)),)
        return (Sample(LARGEST, (self.largest,)), Sample(MEAN, (self.mean,)), *rounded)

    def __add__(self, other: Accuracy) -> Accuracy:
        """Over the inputs of both."""
        worse = other if other.largest > self.largest or not self.inputs else self
        known = self.rounded is not None and other.rounded is not None
        return Accuracy(
            self.inputs + other.inputs,
            worse.largest, worse.at, worse.got, worse.want,
            self.total + other.total,
            (self.rounded or 0) + (other.rounded or 0) if known else None,
        )  # fmt: skip
