"""The properties of level 0: one function per property, free of frameworks and of pytest.

Each takes a backend's client and a case, and returns a judgement or raises a fault. `CHECKS` is
their table, in the order in which they run.

    value         forward, gradient, low precision, compiled, forms
    accuracy, accuracy_gradient
                  elementary functions on every kind of number
    special       NaN and infinity
    arguments, upstream
                  layouts, degenerate shapes and batches of inputs; of upstream gradients
    numerical, derivatives
                  central differences; forward mode and second derivatives
    repetition    determinism, private inputs and outputs, no caching
    distribution, dropped
                  what is drawn by chance; a Dropout in training
    integers      integers and booleans as data, by rows, by forms and in compiled code
    bias          a bias below one ULP
    real, large   full sizes; calls beyond 2^31

`check` is what a check is, `inquiry` asks a backend and judges; `own_forward`, `kept` and `memory`
help.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from d5test.case import FLOATS
from d5test.checks.accuracy import accuracy
from d5test.checks.accuracy_gradient import accuracy_gradient
from d5test.checks.arguments import (
    batch,
    declared_dtypes,
    degenerate,
    has_layouts,
    has_row,
    invalid_arguments,
    layout,
)
from d5test.checks.bias import rounded_to_nearest
from d5test.checks.check import (
    Check,
    drawn,
    listed,
    of_numbers,
    repeatable,
    supported,
    with_gradient,
)
from d5test.checks.derivatives import (
    forward_mode,
    second_gradient,
    with_forward_mode,
    with_second_gradient,
)
from d5test.checks.distribution import distribution
from d5test.checks.dropped import dropout
from d5test.checks.inquiry import Inquiry
from d5test.checks.integers import compiled_integers, has_integers, integer_forms, integers
from d5test.checks.large import (
    has_samples,
    has_samples_and_gradient,
    large_bytes,
    large_bytes_gradient,
    large_cases,
    large_elements,
    large_elements_gradient,
)
from d5test.checks.numerical import has_gradient, numerical_gradient
from d5test.checks.real import has_problems, real, real_cases
from d5test.checks.repetition import determinism, no_caching, untouched
from d5test.checks.special import special
from d5test.checks.upstream import (
    has_gradient_layouts,
    has_gradient_rules,
    layout_gradient,
    special_gradient,
)
from d5test.checks.value import compiled, forms, forward, gradient, low_precision
from d5test.outcome.fault import Evidence, Fault
from d5test.problems.functions import function_cases, slope_cases
from d5test.reference.operators.elementwise import Binary, Pow, Unary
from d5test.reference.operators.movement import Dropout
from d5test.reference.operators.random import Random
from d5test.strategies.integers import of_integers
from d5test.strategies.random import in_training
from d5test.strategies.sizes import LARGE, REAL

CHECKS: Mapping[str, Check] = {
    check.name: replace(check, place=place)
    for place, check in enumerate(
        (
            Check(
                "forward",
                forward,
                ("float64", "float32"),
                "value",
                pairwise=True,
                whole=rounded_to_nearest,
            ),
            Check(
                "gradient",
                gradient,
                ("float64", "float32"),
                "value",
                reason=with_gradient,
                pairwise=True,
                upstream=True,
            ),
            Check(
                "numerical_gradient",
                numerical_gradient,
                ("float64",),
                "value",
                reason=of_numbers(has_gradient),
                largest=0,
            ),
            Check(
                "forward_mode",
                forward_mode,
                ("float64", "float32"),
                "value",
                reason=of_numbers(with_forward_mode),
                parts=("forward", "gradient"),
                largest=0,
                share=0.12,
            ),
            Check(
                "second_gradient",
                second_gradient,
                ("float64", "float32"),
                "value",
                reason=of_numbers(with_second_gradient),
                parts=("forward", "gradient"),
                largest=0,
                share=0.12,
            ),
            Check(
                "low_precision",
                low_precision,
                ("float16", "bfloat16"),
                "value",
                upstream=True,
                whole=rounded_to_nearest,
            ),
            Check(
                "forms",
                forms,
                kind="value",
                in_turn=("float64", "float16", "bfloat16"),
                forms=True,
                parts=("forward", "gradient", "low_precision"),
                share=0.2,  # its function is mostly the row's: what is new is the way to it
                upstream=True,
            ),
            Check("accuracy", accuracy, FLOATS, family=(Unary, Binary, Pow), every=function_cases),
            Check(
                "accuracy_gradient",
                accuracy_gradient,
                FLOATS,
                family=Unary,
                reason=with_gradient,
                every=slope_cases,
                parts=("gradient",),
            ),
            Check("determinism", determinism, reason=repeatable),
            Check("untouched", untouched, reason=listed),
            Check("no_caching", no_caching),
            Check(
                "layout",
                layout,
                ("float32", "float16", "bfloat16"),
                reason=has_layouts,
                later=0.2,
            ),
            Check(
                "layout_gradient",
                layout_gradient,
                ("float32", "float16", "bfloat16"),
                reason=has_gradient_layouts,
                parts=("gradient",),
                share=0.2,  # each case in all layouts
                later=0.4,
            ),
            Check(
                "degenerate",
                degenerate,
                ("float32", "float64", "float16", "bfloat16"),
                cases=partial(drawn, degenerate=True),
                later=0.3,
            ),
            Check(
                "special",
                special,
                ("float32", "float16", "bfloat16"),
                reason=of_numbers(supported),
                later=0.2,
            ),
            Check(
                "special_gradient",
                special_gradient,
                reason=of_numbers(has_gradient_rules),
                parts=("gradient",),
                share=0.4,
            ),
            Check("batch", batch, largest=4096),  # it is asked for many samples
            Check("invalid_arguments", invalid_arguments, largest=0),
            Check("declared_dtypes", declared_dtypes, FLOATS, reason=has_row, draws=1),
            Check(
                "distribution",
                distribution,
                FLOATS,
                family=Random,
                reason=listed,
                largest=0,
                share=0.4,  # each has as many elements as show a wrong share
            ),
            Check(
                "compiled",
                compiled,
                ("float32", "float16", "bfloat16"),
                modes=("compiled", "xla"),
                draws=3,
                quick=12,
                later=0.34,
                parts=("special", "low_precision"),
            ),
            Check(
                "real",
                real,
                ("float32", "bfloat16"),
                "value",
                reason=has_problems,
                every=real_cases,
                sizes=REAL,
                parts=("forward", "gradient", "low_precision"),
            ),
            *(
                Check(
                    run.__name__,
                    run,
                    ("float32", "bfloat16"),
                    reason=reason,
                    every=large_cases,
                    sizes=LARGE,
                    parts=("forward", "gradient", "low_precision"),
                )
                for run, reason in (
                    (large_bytes, has_samples),
                    (large_bytes_gradient, has_samples_and_gradient),
                    (large_elements, has_samples),
                    (large_elements_gradient, has_samples_and_gradient),
                )
            ),
            Check(
                "dropout",
                dropout,
                FLOATS,
                family=Dropout,
                cases=in_training,
                largest=0,
                share=0.4,
            ),
            Check(
                "integers",
                integers,
                cases=of_integers,
                reason=has_integers,
                resizable=True,
            ),
            Check(
                "integer_forms",
                integer_forms,
                cases=of_integers,
                reason=has_integers,
                forms=True,
                parts=("integers",),
                share=0.12,
                largest=0,
            ),
            Check(
                "compiled_integers",
                compiled_integers,
                cases=of_integers,
                reason=has_integers,
                modes=("compiled", "xla"),
                draws=3,
                quick=12,
                parts=("integers",),
            ),
        )
    )
}

__all__ = [
    "CHECKS", "Check", "Evidence", "Fault", "Inquiry", "accuracy", "accuracy_gradient",
    "batch", "compiled", "compiled_integers", "declared_dtypes", "degenerate", "determinism",
    "distribution", "dropout", "forms", "forward", "forward_mode", "gradient", "integer_forms",
    "integers", "invalid_arguments", "large_bytes", "large_bytes_gradient", "large_elements",
    "large_elements_gradient", "layout", "layout_gradient", "low_precision", "no_caching",
    "numerical_gradient", "real", "second_gradient", "special", "special_gradient",
    "untouched",
]  # fmt: skip
