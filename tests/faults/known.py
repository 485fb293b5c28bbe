"""The backends that are wrong on purpose: which check finds each first, and in which words."""

from dataclasses import dataclass
from pathlib import Path

from d5test.case import Operator
from d5test.checks import Fault
from d5test.client.client import WorkerClient
from d5test.client.registry import Spec
from d5test.reference.operators import OPERATORS
from tests.faults import wrong as values
from tests.faults import wrong_derivatives as derivatives
from tests.faults import wrong_functions as functions
from tests.faults import wrong_gradients as gradients
from tests.faults import wrong_memory as memory
from tests.faults import wrong_processes as processes
from tests.faults.judging import BY_DEFAULT, findings
from tests.faults.score import Local


@dataclass(frozen=True)
class Finding:
    """`check` is the first that finds the backend's fault in `operator`, and calls it `kind`.

    `words` stand in its message. `alone`: no other check finds anything.
    """

    backend: type[values.Wrong | gradients.Cubes]
    operator: str
    check: str
    kind: str
    words: str
    alone: bool = False

    @property
    def cls(self) -> type[Operator]:
        return OPERATORS.get(self.operator, gradients.Cube)

    def __str__(self) -> str:
        return self.backend.__name__


WRONG = "the result is wrong"
GRADIENT = "the gradient is wrong"
TANGENT = "the derivative by forward mode is wrong"
SLOPE = "the second derivative is wrong"
STALE = "the outputs do not follow the inputs"

# fmt: off
IN_PROCESS = (
    Finding(values.Zeros, "MatMul", "forward", "value", WRONG),
    Finding(values.Mean, "ReduceSum", "forward", "value", WRONG),
    Finding(values.Identity, "Tanh", "forward", "value", WRONG),
    Finding(values.Upcast, "MatMul", "forward", "dtype", "wrong dtype"),
    Finding(values.Squeezed, "MatMul", "forward", "shape", "wrong shape"),
    Finding(values.OffsetInDouble, "Softmax", "forward", "value", WRONG),
    Finding(values.OffsetInRows, "Softmax", "forward", "value", WRONG, alone=True),
    Finding(values.LowPrecisionSums, "MatMul", "low_precision", "arithmetic",
            "the result is outside class P, inside class S", alone=True),
    Finding(functions.OneOfAll, "Tanh", "accuracy", "value", WRONG, alone=True),
    Finding(functions.FlushedEarly, "Exp", "accuracy", "value", WRONG, alone=True),
    Finding(functions.BeyondItsDomain, "Log", "accuracy", "special", "where NaN is due",
            alone=True),
    Finding(functions.UnsignedZero, "Tanh", "accuracy", "sign of zero",
            "a zero has the wrong sign", alone=True),
    Finding(functions.WiderByTwoPercent, "RandomNormalLike", "distribution", "distribution",
            "off that of Normal", alone=True),
    Finding(functions.RowsAlike, "RandomUniformLike", "distribution", "distribution",
            "elements", alone=True),
    Finding(functions.Unscaled, "Dropout", "dropout", "value", WRONG, alone=True),
    Finding(functions.AnotherMask, "Dropout", "dropout", "gradient", GRADIENT, alone=True),
    Finding(values.AnotherCall, "MatMul", "forms", "value", WRONG, alone=True),
    Finding(values.AnotherCallInDouble, "MatMul", "integer_forms", "value", WRONG, alone=True),
    Finding(values.Nondeterministic, "MatMul", "determinism", "nondeterministic",
            "the same call gives other outputs", alone=True),
    Finding(gradients.SpentGraph, "MatMul", "determinism", "nondeterministic",
            "a second backward pass through the same graph gives other gradients", alone=True),
    Finding(values.BatchDependent, "Conv", "batch", "batch", "in a batch of 17", alone=True),
    Finding(values.LayoutBlind, "MatMul", "layout", "layout", "inputs are misread"),
    Finding(values.LayoutOfTheFirst, "MatMul", "layout", "layout", "inputs are misread",
            alone=True),
    Finding(values.RowsWithoutGaps, "Softmax", "layout", "layout", "inputs are misread",
            alone=True),
    Finding(values.SizeOne, "Softmax", "degenerate", "value", WRONG, alone=True),
    Finding(values.ZeroSizeShape, "Softmax", "degenerate", "shape", "wrong shape", alone=True),
    Finding(values.IntegersInDouble, "Mul", "integers", "value", WRONG, alone=True),
    Finding(values.NanIsGreater, "Greater", "special", "special",
            "the answer is wrong where an input is nan", alone=True),
    Finding(values.NanSwallowed, "MatMul", "special", "special", "nan in an input is swallowed",
            alone=True),
    Finding(values.NanInvented, "MatMul", "special", "special", "nan in one element spoils others",
            alone=True),
    Finding(values.Truncating, "MatMul", "invalid_arguments", "accepted",
            "shapes that do not fit are accepted", alone=True),
    Finding(values.Broadcasting, "Add", "invalid_arguments", "accepted",
            "shapes that do not fit are accepted", alone=True),
    Finding(values.Undeclared, "MatMul", "declared_dtypes", "declared",
            "float64 works, although the row does not declare it", alone=True),
    Finding(values.DeclaredInVain, "MatMul", "low_precision", "exception",
            "the backend's row raised TypeError"),
    Finding(gradients.Scaled, "MatMul", "gradient", "gradient", GRADIENT),
    Finding(gradients.Negated, "MatMul", "gradient", "gradient", GRADIENT),
    Finding(gradients.ZeroGradients, "MatMul", "gradient", "gradient", GRADIENT),
    Finding(gradients.NoGradients, "MatMul", "gradient", "gradient",
            "None for the gradient of input 0, input 1, which means zero"),
    Finding(gradients.Transposed, "MatMul", "gradient", "gradient", GRADIENT),
    Finding(gradients.WrongShape, "Mul", "gradient", "shape", "wrong shape"),
    Finding(gradients.OfNothing, "Tanh", "degenerate", "shape",
            "the gradient of input 0 has the wrong shape", alone=True),
    Finding(gradients.UpstreamIgnored, "LayerNormalization", "gradient", "gradient", GRADIENT),
    Finding(gradients.SecondUseOnly, "Mul", "gradient", "gradient", GRADIENT),
    Finding(gradients.TwiceForTwoUses, "Mul", "gradient", "gradient", GRADIENT),
    Finding(gradients.Exchanged, "Mul", "gradient", "gradient", GRADIENT),
    Finding(gradients.EveryTiedElement, "Max", "gradient", "gradient",
            "the gradients of equal elements do not add up"),
    Finding(gradients.OneElement, "MatMul", "gradient", "gradient", GRADIENT),
    Finding(gradients.OneElementInSingle, "LayerNormalization", "gradient", "gradient", GRADIENT,
            alone=True),
    Finding(gradients.WrongInHalf, "Conv", "low_precision", "gradient", GRADIENT),
    Finding(gradients.EpsilonAdded, "MatMul", "gradient", "gradient", GRADIENT),
    Finding(gradients.NanAtZero, "Pow", "gradient", "gradient", GRADIENT),
    Finding(gradients.OtherBranchOverflows, "Elu", "accuracy_gradient", "gradient", GRADIENT,
            alone=True),
    Finding(gradients.NanWithoutVariance, "LayerNormalization", "gradient", "gradient", GRADIENT),
    Finding(gradients.UpstreamLayoutBlind, "MatMul", "layout_gradient", "layout",
            "upstream gradients are misread", alone=True),
    Finding(gradients.ExpandedReadOnce, "Tanh", "layout_gradient", "layout",
            "upstream gradients are misread", alone=True),
    Finding(gradients.LostAlone, "MatMul", "gradient", "gradient", GRADIENT),
    Finding(gradients.UpstreamNanSwallowed, "MatMul", "special_gradient", "special",
            "nan in an upstream gradient is swallowed", alone=True),
    Finding(gradients.UpstreamNanSpread, "Tanh", "special_gradient", "special",
            "spoils gradients without it", alone=True),
    Finding(gradients.WrongSlope, "Cube", "numerical_gradient", "gradient",
            "the gradient disagrees with the slope of its own forward", alone=True),
    Finding(derivatives.OneFactorMoves, "Mul", "forward_mode", "tangent", TANGENT, alone=True),
    Finding(derivatives.NothingMoves, "Tanh", "forward_mode", "tangent", TANGENT, alone=True),
    Finding(derivatives.TangentsInHalf, "MatMul", "forward_mode", "tangent", TANGENT, alone=True),
    Finding(derivatives.BeyondTheKink, "Relu", "forward_mode", "tangent", TANGENT, alone=True),
    Finding(derivatives.OtherOutputs, "MatMul", "forward_mode", "value",
            "the outputs are wrong when a derivative is asked for", alone=True),
    Finding(derivatives.Detached, "Tanh", "second_gradient", "second gradient", SLOPE, alone=True),
    Finding(derivatives.NoMixedTerms, "Mul", "second_gradient", "second gradient", SLOPE,
            alone=True),
    Finding(derivatives.SlopesInHalf, "LayerNormalization", "second_gradient", "second gradient",
            SLOPE, alone=True),
    Finding(derivatives.CurvedLines, "ReduceSum", "second_gradient", "second gradient", SLOPE,
            alone=True),
    Finding(derivatives.TangentsOfMemory, "Mul", "forward_mode", "layout", f"{TANGENT} where",
            alone=True),
    Finding(derivatives.SlopesOfMemory, "LayerNormalization", "second_gradient", "layout",
            f"{SLOPE} where", alone=True),
    Finding(memory.CachedByIdentity, "MatMul", "no_caching", "cached", STALE, alone=True),
    Finding(memory.CachedByAddress, "MatMul", "no_caching", "cached", STALE, alone=True),
    Finding(memory.CachedByShape, "MatMul", "low_precision", "value", WRONG),
    Finding(memory.CachedByFingerprint, "MatMul", "no_caching", "cached", STALE, alone=True),
    Finding(memory.CachedByEnds, "MatMul", "no_caching", "cached", STALE),
    Finding(memory.OutputReused, "MatMul", "untouched", "overwritten",
            "an output changes when the next call is made", alone=True),
    Finding(memory.InputOverwritten, "Tanh", "untouched", "mutated", "an input is overwritten",
            alone=True),
    Finding(memory.ViewOverwritten, "Tanh", "layout", "mutated",
            "an input is overwritten in a call with", alone=True),
    Finding(memory.ViewOfUpstreamOverwritten, "Tanh", "layout_gradient", "mutated",
            "an upstream gradient is overwritten in a call with", alone=True),
    Finding(memory.UpstreamOverwritten, "MatMul", "untouched", "mutated",
            "an upstream gradient is overwritten", alone=True),
    Finding(processes.Raising, "MatMul", "forward", "exception", "no kernel found"),
    Finding(processes.NeverCompiled, "MatMul", "compiled", "not compiled", "nothing was compiled",
            alone=True),
    Finding(processes.IntegersOffWhenCompiled, "MatMul", "compiled_integers", "value", WRONG,
            alone=True),
)
COMPILED = (
    Finding(processes.WrongWhenCompiled, "MatMul", "compiled", "value", WRONG),
    Finding(processes.ConstantsFolded, "MatMul", "compiled", "cached", "the second call is wrong"),
    Finding(processes.OldShape, "MatMul", "compiled", "cached",
            "a call of another shape is wrong"),
)
IN_A_WORKER = (
    Finding(processes.Aborting, "MatMul", "forward", "crash", "the process died"),
    Finding(processes.Segfaulting, "MatMul", "forward", "crash", "SIGSEGV"),
    Finding(processes.Exiting, "MatMul", "forward", "crash", "the process died"),
    Finding(processes.Hanging, "MatMul", "forward", "hang", "no answer"),
    Finding(processes.AbortingOnMisfits, "MatMul", "invalid_arguments", "crash", "SIGABRT"),
)
# fmt: on

EVERY = (*IN_PROCESS, *COMPILED, *IN_A_WORKER)

COUNT = 25
"""Cases of each check and dtype: what a user draws who says nothing."""


def local(finding: Finding) -> Local:
    """The backend in this process."""
    return Local(str(finding), finding.backend())


def found_first(finding: Finding) -> Fault | None:
    """The fault that a run of the suites finds first.

    In a worker, which ends at each case, only the check that should find it is run.
    """
    if finding in IN_A_WORKER:
        spec = Spec(str(finding), f"{Path(processes.__file__)}:{finding}")
        with WorkerClient(spec, timeout=2.0) as client:
            return findings(client, finding.cls, (finding.check,), 2).get(finding.check)
    client = local(finding)
    for name in ("compiled",) if finding in COMPILED else BY_DEFAULT:
        for fault in findings(client, finding.cls, (name,), COUNT).values():
            return fault
    return None
