"""From a source to a library: what is compiled anew, and what a mistake looks like."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from d5test.native import compiler, library

SOURCE = """#include <d5test/operator.h>
#include "factor.h"
template <typename T>
class Scale : public d5test::CustomOperator<T> {
public:
    void forward(const d5test::Inputs<T>& in, const d5test::Outputs<T>& out) override {
        for (int64_t i = 0; i < in[0].size(); ++i) out[0][i] = FACTOR * in[0][i];
    }
};
D5TEST_OPERATOR(Scale).input("x").output("y");
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "scale.cpp"
    path.write_text(SOURCE)
    (tmp_path / "factor.h").write_text("#define FACTOR 2\n")
    return path


def test_compiled_once_for_a_source_and_its_headers(source: Path, tmp_path: Path) -> None:
    first = compiler.library(source)
    assert first.parent == tmp_path / "cache" / "d5test" / "native"
    before = first.stat().st_mtime_ns
    assert compiler.library(source) == first
    assert first.stat().st_mtime_ns == before
    (tmp_path / "factor.h").write_text("#define FACTOR 5\n")
    other = compiler.library(source)
    assert other != first
    op = library.declared(other)["Scale"].make({}, 64, guarded=True)
    assert np.array_equal(op.forward([np.arange(3.0)])[0], [0.0, 5.0, 10.0])
    assert sorted(first.parent.iterdir()) == sorted([first, other])


def test_a_compile_error_is_the_compilers_message(source: Path) -> None:
    source.write_text(SOURCE.replace("in[0].size()", "in[0].sise()"))
    with pytest.raises(compiler.CompileError) as refused:
        compiler.library(source)
    lines = str(refused.value).splitlines()
    assert any(line.startswith(f"{source}:7:") and "sise" in line for line in lines)
    assert "Traceback" not in str(refused.value)


def test_a_missing_header_is_the_compilers_message(source: Path, tmp_path: Path) -> None:
    (tmp_path / "factor.h").unlink()
    with pytest.raises(compiler.CompileError, match=r"scale\.cpp:2:10: fatal error: factor\.h"):
        compiler.library(source)


def test_a_class_that_is_no_operator_is_said_in_a_sentence(source: Path) -> None:
    source.write_text(SOURCE.replace(" : public d5test::CustomOperator<T>", ""))
    with pytest.raises(compiler.CompileError, match="derived from d5test::CustomOperator<T>"):
        compiler.library(source)


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("DeclaredOutput.* has no member named .constant", '.output("y").constant()'),
        ("DeclaredInput.* has no member named .unread", '.output("y").input("z").unread()'),
        ("Declaration.* has no member named .optional", '.output("y").contiguous().optional()'),
    ],
)
def test_what_is_said_of_the_wrong_tensor_is_a_compile_error(
    source: Path, said: str, wrong: str
) -> None:
    source.write_text(SOURCE.replace('.output("y")', wrong))
    with pytest.raises(compiler.CompileError, match=said):
        compiler.library(source)


def test_no_compiler_and_no_file_are_a_sentence(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(compiler.CompileError, match=r"no file nowhere\.cpp"):
        compiler.library("nowhere.cpp")
    monkeypatch.setenv("CXX", "g++-of-nobody")
    with pytest.raises(compiler.CompileError, match=r"no compiler g\+\+-of-nobody: install it"):
        compiler.library(source)


def test_a_source_that_registers_nothing_is_said(source: Path) -> None:
    source.write_text("\n".join(SOURCE.splitlines()[:-1]))
    path = compiler.library(source)
    with pytest.raises(library.NativeError, match="registers no operator"):
        library.declared(path)


@pytest.mark.skipif(compiler.nvcc() is None, reason="there is no nvcc")
def test_a_cuda_source_is_compiled_and_belongs_to_no_backend_of_the_cpu(suite) -> None:
    source = Path(__file__).with_name("scale.cu")
    scale = library.declared(compiler.library(source))["Scale"]
    assert scale.on_cuda
    assert scale.differentiable
    ran = suite(f"--native={source}", "--check=forward")
    assert "numpy has no row for Scale" in ran.text


def test_nvcc_is_found_where_it_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(root: str) -> Path:
        path = tmp_path / root / "bin" / "nvcc"
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return path

    source = tmp_path / "a.cu"
    source.write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(compiler.CompileError, match=r"no nvcc: .* pip install nvidia-cuda-nvcc"):
        compiler.compiler(source)
    package = made("nvidia/cu13")
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path / "nvidia")])
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: spec)
    assert compiler.compiler(source)[0] == str(package)
    home = made("home")
    monkeypatch.setenv("CUDA_HOME", str(home.parents[1]))
    assert compiler.nvcc() == str(home)
    path = made("path")
    monkeypatch.setenv("PATH", str(path.parent))
    assert compiler.nvcc() == str(path)
