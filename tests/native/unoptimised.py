"""d5test's kernels without optimisation: compiled in half the time, and right all the same."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from d5test.backends.base import Row
from d5test.native.backend import Kernels, Native


class Unoptimised(Native):
    kernels: ClassVar[Kernels] = replace(Native.kernels, flags=("-O0",))
    rows: ClassVar[Mapping[str, Row]] = kernels.rows()
