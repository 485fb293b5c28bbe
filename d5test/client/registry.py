"""Which backend is meant by a name. Nothing is imported here.

torch                       an entry point of the group d5test.backends, ours or a stranger's
package.module:Name         a class, imported in the worker from the working directory
./file.py:Name              a class in a file
torch@/path/bin/python      any of these, under another interpreter
"""

import importlib.util
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from d5test.client.messages import UnknownBackend
from d5test.names import hint, nameless, quoted

GROUP = "d5test.backends"

BUILTIN: Mapping[str, str] = {
    "numpy": "d5test.backends.numpy:Numpy",
    "native": "d5test.native.backend:Native",
    "onednn": "d5test.native.onednn:OneDnn",
    "torch": "d5test.backends.torch:Torch",
    "torch-compiled": "d5test.backends.torch:TorchCompiled",
    "torch-deterministic": "d5test.backends.torch:TorchDeterministic",
    "tensorflow": "d5test.backends.tensorflow:TensorFlow",
    "tensorflow-compiled": "d5test.backends.tensorflow:TensorFlowCompiled",
    "tensorflow-xla": "d5test.backends.tensorflow:TensorFlowXla",
    "jax": "d5test.backends.jax:Jax",
    "jax-compiled": "d5test.backends.jax:JaxCompiled",
    "onnxruntime": "d5test.backends.onnxruntime:OnnxRuntime",
    "cupy": "d5test.backends.cupy:Cupy",
}
"""Our own, for a clone that is not installed; the same as the entry points in pyproject.toml."""

WHEELS: Mapping[str, str] = {"cupy": "cupy-cuda13x"}
"""Packages whose distribution has another name."""
COMPILED: Mapping[str, tuple[str, ...]] = {
    "d5test.native.backend:Native": (),
    "d5test.native.onednn:OneDnn": ("dnnl.hpp", "libdnnl.so"),
}
"""Targets of ours that need a compiler and these files of a library, and no package."""
LONGEST = 1000
"""Characters of a name: no file system has a longer path in use."""


@dataclass(frozen=True)
class Spec:
    """A backend by name: the class, and the interpreter if it is not this one."""

    name: str
    target: str
    python: str | None = None


@cache
def known() -> Mapping[str, str]:
    """The target of each name, strangers' entry points included: read once from all packages."""
    return {**BUILTIN, **{entry.name: entry.value for entry in entry_points(group=GROUP)}}


def resolve(text: str) -> Spec:
    """The backend that is meant. Raises `UnknownBackend`, which says what there is."""
    if len(text) > LONGEST:
        raise UnknownBackend(f"a backend's name has {len(text)} characters, {LONGEST} at most")
    what, at, where = text.partition("@")
    return Spec(text, target(what), interpreter(where) if at else None)


def target(what: str) -> str:
    """`module:Name` or `/path/file.py:Name` of a name or of a target itself."""
    names = known()
    if what in names:
        return names[what]
    module, colon, name = what.rpartition(":")
    if not colon and what.endswith(".py") and (why := nameless("backend", what)):
        raise UnknownBackend(why)
    if not colon or not module or not name:
        raise UnknownBackend(_unknown(what, names))
    if not module.endswith(".py"):
        if os.sep in module:
            raise UnknownBackend(f"no backend {quoted(what)}: that is not a Python file")
        return what
    path = os.path.abspath(os.path.expanduser(module))  # unlike Path's, they raise nothing
    if not os.path.isfile(path):
        raise UnknownBackend(f"no backend {quoted(what)}: there is no file {quoted(path)}")
    return f"{path}:{name}"


def interpreter(where: str) -> str:
    """The path of a Python, given by path, by name, or by the folder of its environment.

    A link is not followed: that is how an environment's Python knows where it is.
    """
    path = os.path.expanduser(where)
    if os.path.isdir(path):
        path = os.path.join(path, "bin", "python")
    if os.sep not in where and not os.path.exists(path):
        path = shutil.which(where) or path
    if not where or not os.access(path, os.X_OK):
        raise UnknownBackend(
            f"no interpreter {quoted(where)}: give the path of a Python, as in @v/bin/python"
        )
    return os.path.abspath(path)


def package(target: str) -> str:
    """The package that has to be installed for a target: ours are named after theirs."""
    module = target.rpartition(":")[0]
    return module.rpartition(".")[2] if module.startswith("d5test.") else module.split(".")[0]


def installed() -> tuple[str, ...]:
    """The names whose package is installed under this interpreter."""
    return tuple(name for name, where in known().items() if _usable(where))


def missing() -> dict[str, str]:
    """The other names, each with what installs it."""
    return {name: _remedy(where) for name, where in known().items() if not _usable(where)}


def _remedy(target: str) -> str:
    if COMPILED.get(target):
        return "install oneDNN 2 and a compiler, Debian: apt install g++ libdnnl-dev"
    if target in COMPILED:
        return "install a compiler, Debian: apt install g++; or set CXX"
    return f"pip install {WHEELS.get(package(target), package(target))}"


def _usable(target: str) -> bool:
    if target in COMPILED:
        compiler = shutil.which(os.environ.get("CXX") or "g++")
        return compiler is not None and all(map(_in_system, COMPILED[target]))
    return importlib.util.find_spec(package(target)) is not None


def _in_system(file: str) -> bool:
    """Whether a header or library is where a compiler looks."""
    named = ("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "LD_LIBRARY_PATH")
    folders = [Path(f) for name in named for f in os.environ.get(name, "").split(os.pathsep) if f]
    system = [*Path("/usr").glob("local/*/"), *Path("/usr").glob("lib*/"),
              *Path("/usr/lib").glob("*-linux-gnu*/"), Path("/usr/include")]  # fmt: skip
    return any((folder / file).is_file() for folder in (*folders, *system))


def _unknown(what: str, names: Mapping[str, str]) -> str:
    meant = hint(what, names)
    lines = [f"no backend {quoted(what)}" + (f"; {meant}" if meant.startswith("did") else "")]
    lines.append(f"installed: {', '.join(installed())}")
    lines += [f"not installed: {name} ({how})" for name, how in missing().items()]
    lines.append("or give module:Name or ./file.py:Name")
    return "\n".join(lines)
