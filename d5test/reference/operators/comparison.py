"""Comparisons: booleans, which are exact and have no gradient."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from d5test.reference.operators.broadcasting import Broadcasting

__all__ = ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"]


class Comparison(Broadcasting):
    """Whether it is so, element by element. a, b: shapes that broadcast; y: booleans.

    A NaN is not equal to any number, and not below or above it. IEEE 754, section 5.11.
    """

    answers_nan = True
    function: ClassVar[Any]

    def forward(self, a, b):
        return type(self).function(a, b)


@dataclass(frozen=True, kw_only=True, repr=False)
class Equal(Comparison):
    """a = b. ONNX Equal-19."""

    since = 19
    function = np.equal


@dataclass(frozen=True, kw_only=True, repr=False)
class Greater(Comparison):
    """a > b. ONNX Greater-13."""

    since = 13
    function = np.greater


@dataclass(frozen=True, kw_only=True, repr=False)
class GreaterOrEqual(Comparison):
    """a >= b. ONNX GreaterOrEqual-16."""

    since = 16
    function = np.greater_equal


@dataclass(frozen=True, kw_only=True, repr=False)
class Less(Comparison):
    """a < b. ONNX Less-13."""

    since = 13
    function = np.less


@dataclass(frozen=True, kw_only=True, repr=False)
class LessOrEqual(Comparison):
    """a <= b. ONNX LessOrEqual-16."""

    since = 16
    function = np.less_equal
