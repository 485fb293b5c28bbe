"""Named cases, fixed: for timing, and for accuracy across runs."""

from d5test.problems.deepbench import deepbench, smallest
from d5test.problems.problem import Problem

__all__ = ["Problem", "deepbench", "smallest"]
