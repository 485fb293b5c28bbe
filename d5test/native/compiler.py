"""From an author's file to a shared library, once for each source, header, compiler and flag.

What is compiled lies in `$XDG_CACHE_HOME/d5test/native`, under a hash of the preprocessed source
(so of every header too), of the flags, of the compiler's version and of this processor. What
cannot be compiled raises `CompileError`, whose text is the compiler's and nothing else.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from d5test import processor

INCLUDE = Path(__file__).with_name("include")
COMMON = ("-std=c++17", "-O3")
HOST = ("-march=native", "-fopenmp", "-fPIC", "-fvisibility=hidden", "-Wall")
NVCC = ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-runtime")
"""Packages that have it, where CUDA is not installed."""
SANITIZED = (
    "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined",
    "-fno-omit-frame-pointer", "-g", "-O1",
)  # fmt: skip
"""What `--native-sanitize` adds; the last -O counts."""


class CompileError(Exception):
    """A source that the compiler refuses; the text is what it says."""


def library(
    source: str | Path,
    *,
    sanitize: bool = False,
    flags: Sequence[str] = (),
    libraries: Sequence[str] = (),
) -> Path:
    """The shared library of a source: `.cu` by nvcc, anything else by `$CXX` or g++.

    `flags` are more of the compiler's, `libraries` what it is linked with: `("-ldnnl",)`.

    Raises `CompileError`, also where there is no compiler.
    """
    source = Path(source)
    if not source.is_file():
        raise CompileError(f"no file {source}")
    if sanitize and source.suffix == ".cu":
        raise CompileError(f"{source}: no sanitizer for CUDA here; run compute-sanitizer")
    command = [*compiler(source), *flags, *(SANITIZED if sanitize else ())]
    preprocessed = _run([*command, "-E", str(source)])
    return _built(source, command, [preprocessed], libraries)


def bridge(
    source: Path, version: str, flags: Sequence[str], libraries: Sequence[str] = ()
) -> Path:
    """The shared library of a bridge to a framework of this version, whose headers `flags` name.

    Their text takes no part in the hash: to read it all takes seconds, and the version stands for
    it.
    """
    headers = sorted([*source.parent.glob("*.h"), *(INCLUDE / "d5test").glob("*.h")])
    ours = [path.read_text() for path in (source, *headers)]
    command = [*compiler(source), "-fvisibility=default", *flags]
    return _built(source, command, [version, *ours], libraries)


def _built(
    source: Path, command: Sequence[str], content: Sequence[str], libraries: Sequence[str] = ()
) -> Path:
    version = _run([command[0], "--version"])
    # -march=native depends on what the processor has
    words = "\0".join([version, *processor.flags(), *command, *libraries, *content])
    path = cache() / f"{source.stem}-{hashlib.sha256(words.encode()).hexdigest()[:16]}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            library = Path(folder) / path.name
            _run([*command, "-shared", str(source), "-o", str(library), *libraries])
            library.replace(path)
    return path


def cache() -> Path:
    """Where compiled libraries lie."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "d5test" / "native"


def compiler(source: Path) -> list[str]:
    """The command that compiles a source, without its name."""
    if source.suffix == ".cu":
        host = ["-Xcompiler", ",".join(HOST)]
        cuda = nvcc()
        if cuda is None:
            raise CompileError(f"no nvcc: install CUDA, or pip install {' '.join(NVCC)}")
        return [cuda, *COMMON, *host, "-arch=native", f"-I{INCLUDE}"]
    return [_host(), *COMMON, *HOST, f"-I{INCLUDE}"]


def nvcc() -> str | None:
    """CUDA's compiler, if there is one: on the path, in `$CUDA_HOME`, or as Python packages."""
    if path := shutil.which("nvcc"):
        return path
    home, packages = os.environ.get("CUDA_HOME"), importlib.util.find_spec("nvidia")
    places = [Path(home)] if home else []
    for root in (packages and packages.submodule_search_locations) or ():
        places += sorted(Path(root).glob("cu*"))
    return next(filter(shutil.which, (str(place / "bin" / "nvcc") for place in places)), None)


def version() -> str:
    """The compiler and its version, as a part of a version number: `gxx.12.2.0`, `clangxx.19.1`.

    Raises `CompileError` where there is none.
    """
    path = _host()
    name = re.sub(r"[^a-z]", "", Path(path).name.replace("+", "x").partition("-")[0])
    return f"{name}.{_run([path, '-dumpfullversion', '-dumpversion']).strip()}"


def preloaded() -> str:
    """What LD_PRELOAD must name: AddressSanitizer's runtime, and what it looks for when it starts
    (a process without libstdc++ dies of the first exception).
    """
    paths = []
    for name in ("libasan.so", "libstdc++.so"):
        path = Path(_run([_host(), f"-print-file-name={name}"]).strip())
        if not path.is_absolute():
            raise CompileError(f"the compiler has no {name}")
        paths.append(str(path.resolve()))
    return ":".join(paths)


def _host() -> str:
    """The compiler of what is not CUDA."""
    name = os.environ.get("CXX") or "g++"
    path = shutil.which(name)
    if path is None:
        raise CompileError(f"no compiler {name}: install it (Debian: apt install g++), or set CXX")
    return path


def _run(command: Sequence[str]) -> str:
    """What a command prints. Raises `CompileError` with what it says where it fails."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise CompileError((ran.stderr or ran.stdout).strip())
    return ran.stdout
