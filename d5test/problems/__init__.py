"""Named cases, fixed, so that their time and accuracy compare across runs.

corpus     frozen cases (`freezing` chose them, `exporting` writes ONNX test data)
functions  inputs of elementary functions
real       DeepBench's problems and those of networks; `scaling` makes them small
"""

from dataclasses import dataclass
from math import prod

from d5test.case import Case, dtype_of


@dataclass(frozen=True)
class Problem:
    """A named case. `source` says where its sizes come from."""

    name: str
    case: Case
    source: str

    @property
    def multiplications(self) -> int:
        """Scalar multiplications of the forward pass; 0 if the operator does not count them."""
        return self.case.op.multiplications(*self.case.shapes) or 0

    @property
    def input_bytes(self) -> int:
        """Bytes of all inputs."""
        return sum(
            prod(t.shape) * dtype_of(t.dtype).itemsize for t in self.case.inputs if t is not None
        )
