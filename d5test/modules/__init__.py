"""PyTorch's functions and modules as references, and candidates that are judged by them.

montecarlo   rounding errors at each primitive of what PyTorch runs
reference    a function or a module as an operator, whose bars are the spread of such runs
problem      a file with `Model` and `get_inputs`, at its own sizes and at others
setting      a problem at some sizes: the operator, and its inputs by regime
candidate    what a worker knows that makes and calls the module of a file
bench        such a worker, seen from outside
verdict      what is said of a candidate
judge        which checks a candidate is asked, at which sizes
timing       whether a candidate is faster

Nothing here imports torch but these modules, which are imported once torch was.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType
from typing import Any

TORCH = "torch"


def is_of_torch(function: Callable[..., Any]) -> bool:
    """Whether a callable is PyTorch's: a module, one of its functions, or code that names torch.

    What a function's module holds says nothing: only the names that its own code reads do.
    """
    torch: Any = sys.modules.get(TORCH)
    if torch is None:
        return False
    if isinstance(function, partial):
        return is_of_torch(function.func)
    if isinstance(function, torch.nn.Module) or _is_named(function):
        return True
    plain = getattr(function, "__func__", function)
    code = getattr(plain, "__code__", None)
    if code is None:
        return False
    known = {**getattr(plain, "__globals__", {})}
    for name, cell in zip(code.co_freevars, plain.__closure__ or (), strict=True):
        known[name] = getattr(cell, "cell_contents", None)
    return any(
        isinstance(known.get(name), torch.nn.Module | torch.Tensor) or _is_named(known.get(name))
        for name in _names(code)
    )


def _is_named(thing: Any) -> bool:
    """Whether a package, a class or a function is torch's by its name."""
    owner = getattr(thing, "__objclass__", thing)  # of a method that is written in C
    name = getattr(owner, "__module__", None) or getattr(owner, "__name__", "")
    return isinstance(name, str) and name.partition(".")[0] == TORCH


def _names(code: CodeType) -> Iterator[str]:
    """The global and free names that code reads, that of the functions in it too."""
    yield from (*code.co_names, *code.co_freevars)
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _names(part)
