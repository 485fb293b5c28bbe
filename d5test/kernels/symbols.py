"""The names of compiled functions, as their authors wrote them, and which are the framework's."""

import ctypes
import re
from functools import cache
from pathlib import Path
from typing import Any

from d5test.kernels.probe import Function

STANDARD = re.compile(r"_Z(N[VKOR]*)?(S[atbsiod]|9__gnu_cxx|NSt)|_ZN[VKOR]*St")
"""The linker's names of what C++'s standard library brings, compiled into each library anew."""
COLD = re.compile(r"\.cold(\.\d+)?$")
"""The part of a function that is seldom run is no function of its own."""
OPERATOR = re.compile(r"\boperator(\(\)|\[\]|[-+*/%&|^~!=<>,]{1,3}(?=[(<])| [\w:]+[*&]?(?=\())")
HIDDEN = "\0"
"""What stands for an operator while brackets are counted: its own are none."""
QUALIFIER = re.compile(r"\b[A-Za-z_]\w*::$")
LONGEST = 100
"""Characters of a name that is shown."""


def counts(function: Function) -> bool:
    """Whether it is a function of the framework's own."""
    return not (STANDARD.match(function.name) or COLD.search(function.name))


def readable(function: Function) -> str:
    """Its name without parameters, on one line; of a nameless one where it is.

    >>> readable(Function("libx.so", 64, "_ZN2at3addEii"))
    'at::add'
    """
    if not function.name:
        return f"{Path(function.library).name}+{function.address:#x}"
    name = short(demangled(function.name))
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."


def short(name: str) -> str:
    """A demangled name without what it returns and takes, and with short template arguments.

    >>> short("void a::f<(b::Kind)1, b::C<int> >(int, a::g(char)) const")
    'a::f<(Kind)1, C<int> >'
    """
    operators: list[str] = []

    def hidden(match: re.Match[str]) -> str:
        operators.append(match[0])
        return HIDDEN

    name = OPERATOR.sub(hidden, name.replace("(anonymous namespace)::", ""))
    words, passed, depth, kept = "", 0, 0, 0
    for i, c in enumerate(name):
        depth -= c in ">)]}"
        if depth == 0 and c == " ":
            passed += words.count(HIDDEN)
            words = ""
        elif depth == 0 and c == "(" and words and not words.endswith("::"):
            kept = len(words)
            words += c
        elif depth == 0 and c == ")" and kept:  # parameters: of the whole, or of what is inside of
            words, kept = words[:kept], 0
            if not name.startswith("::", i + 1):
                break
        else:
            words += c
        if depth and c == ":":
            words = QUALIFIER.sub("", words)
        depth += c in "<([{"
    for operator in operators[passed:]:
        words = words.replace(HIDDEN, operator, 1)
    return words


def demangled(name: str) -> str:
    """A linker's name in C++; what is none of C++'s is left as it is."""
    demangle = _demangler()
    if demangle is None or not name.startswith("_Z"):
        return name
    base, _, clone = name.partition(".")
    text = demangle(base.encode(), None, None, ctypes.byref(ctypes.c_int()))
    if not text:
        return name
    try:
        words = (ctypes.cast(text, ctypes.c_char_p).value or b"").decode(errors="replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(text))
    return f"{words}.{clone}" if clone else words


@cache
def _demangler() -> Any:
    """The function of C++'s run-time library; None where there is none."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    function = library["__cxa_demangle"]
    function.restype = ctypes.c_void_p
    return function
