"""`pytest suites/operators --native=FILE`: what is right passes, each fault is found and named."""

import shutil
from pathlib import Path

import pytest

from d5test.cli import main
from tests.nightly import thinned

HERE = Path(__file__).parent
FAULTS = f"--native={HERE / 'faults.cpp'}"
HARMLESS = (
    "Right", "WritesBehind", "WritesBefore", "Unwritten", "UnwrittenGradient", "WrongGradient",
    "IgnoresStrides", "ReadsRows", "Leaks", "KeepsWorkspace", "OverwritesInput", "Aborts",
    "Throws", "ReadsUnread",
)  # fmt: skip
"""All but the one that ruins the heap of its process, of which a later case may die."""
FEW = ("--examples=6", "--dtype=float64,float32")


def test_a_new_operator_passes_every_check(tmp_path, monkeypatch, suite):
    monkeypatch.chdir(tmp_path)
    assert main(["native", "new", "IPow"]) == 0
    ran = suite("--native=ipow.cpp", "--operator=IPow", "--examples=20")
    assert ran.rc == 0, ran.text
    for check, dtype in (
        ("forward", "float32"), ("forward", "float64"), ("gradient", "float32"),
        ("gradient", "float64"), ("numerical_gradient", "float64"), ("determinism", "float32"),
        ("untouched", "float32"), ("no_caching", "float32"), ("layout", "float32"),
        ("degenerate", "float32"), ("declared_dtypes", "float32"),
    ):  # fmt: skip
        assert f"test_{check}[numpy-IPow-{dtype}]" in ran.passed, ran.text
    assert main(["native", "new", "IPow"]) == 2, "nothing is overwritten"


@pytest.mark.parametrize(
    ("operator", "check", "said"),
    thinned(
        [
            ("WritesBehind", "forward", "bytes beyond the last of output y"),
            ("WritesBefore", "forward", "bytes before the first of output y"),
            ("Unwritten", "forward", "unwritten of output y"),
            ("UnwrittenGradient", "gradient", "unwritten of the gradient of input x"),
            ("WrongGradient", "gradient", "WrongGradient(): the gradient is wrong"),
            ("WrongGradient", "numerical_gradient", "WrongGradient(): the gradient is wrong"),
            ("IgnoresStrides", "layout", "inputs are misread"),
            ("Leaks", "forward", "bytes of memory at each call"),
            ("OverwritesInput", "untouched", "overwrites input x"),
            ("Aborts", "forward", "Aborts(): the process died"),
            ("ReadsUnread", "gradient", "ReadsUnread(): the process died"),
            ("Throws", "forward", "Throws.forward throws: the moon is wrong"),
        ],
    ),
)
def test_each_fault_is_found_and_named(faulty, operator, check, said):
    messages = [
        text for name, text in faulty.failed.items()
        if name.startswith(f"test_{check}[numpy-{operator}-float")
    ]  # fmt: skip
    assert messages
    assert all(said in message for message in messages)
    assert all(operator in message for message in messages)


@pytest.mark.parametrize("operator", ["Right", "ReadsRows", "KeepsWorkspace"])
def test_what_is_right_passes(faulty, operator):
    assert not [name for name in faulty.failed if f"-{operator}-" in name]
    assert len([name for name in faulty.passed if f"-{operator}-" in name]) == 7


@pytest.fixture(scope="module")
def faulty(tmp_path_factory, run_suite):
    checks = "forward,gradient,numerical_gradient,layout,untouched"
    names = ",".join(HARMLESS)
    folder = tmp_path_factory.mktemp("faulty")
    return run_suite(folder, FAULTS, f"--operator={names}", f"--check={checks}", *FEW)


@pytest.mark.nightly
def test_without_a_reference_only_the_gradient_is_judged_and_that_is_said(tmp_path, suite):
    shutil.copy(HERE / "faults.cpp", tmp_path)
    ran = suite(
        "--native=faults.cpp", "--operator=Right,WrongGradient,IgnoresStrides", *FEW,
        "--check=forward,gradient,numerical_gradient,layout,untouched,determinism",
    )  # fmt: skip
    assert ran.rc == 1
    assert set(ran.failed) == {"test_numerical_gradient[numpy-WrongGradient-float64]"}, ran.text
    assert "WrongGradient has no reference: its values were not judged" in ran.text
    assert "test_numerical_gradient[numpy-Right-float64]" in ran.passed


def test_onnx_has_the_reference_of_its_own_operators(suite):
    ran = suite(f"--native={HERE / 'shapes.cpp'}", "--operator=Relu", *FEW)
    assert ran.rc == 0, ran.text
    assert "test_forward[numpy-Relu-float64]" in ran.passed
    assert "test_gradient[numpy-Relu-float64]" in ran.passed


def test_named_axes_are_drawn_so_that_they_fit(suite):
    native = f"--native={HERE / 'shapes.cpp'}"
    ran = suite(native, "--operator=Product", "--check=numerical_gradient", *FEW)
    assert ran.rc == 0, ran.text
    assert "test_numerical_gradient[numpy-Product-float64]" in ran.passed


def test_it_is_timed_and_what_was_timed_is_judged(suite):
    ran = suite(FAULTS, "--operator=Right,IgnoresStrides", where="operators/test_time.py")
    assert ran.rc == 0, ran.text
    for problem in ("right-16", "right-1048576", "ignoresstrides-16"):
        for direction in ("forward", "backward"):
            assert f"test_time[{problem}-{direction}-numpy]" in ran.passed, ran.text


def test_what_has_no_reference_is_not_timed_and_that_is_said(suite):
    native = f"--native={HERE / 'shapes.cpp'}"
    ran = suite(native, "--operator=Product", "-rs", where="operators/test_time.py")
    assert not ran.passed | set(ran.failed)
    assert "unsupported: Product has no reference" in ran.text


def test_a_sanitizer_needs_a_worker(suite):
    ran = suite(FAULTS, "--native-sanitize", "--in-process")
    assert ran.rc == 4
    assert "--native-sanitize needs a worker process: leave out --in-process" in ran.text


def test_a_compile_error_is_the_compilers_message_and_status_4(tmp_path, suite):
    (tmp_path / "wrong.cpp").write_text("#include <d5test/operator.h>\nint main( { }\n")
    ran = suite("--native=wrong.cpp")
    assert ran.rc == 4
    assert "ERROR: wrong.cpp:2:5: error: " in ran.text
    assert "Traceback" not in ran.text


@pytest.mark.nightly
def test_the_sanitizer_names_the_line(suite):
    ran = suite(FAULTS, "--operator=OverrunsItself,Right", "--check=forward",
                "--native-sanitize", "--dtype=float64", "--examples=3")  # fmt: skip
    assert set(ran.failed) == {"test_forward[numpy-OverrunsItself-float64]"}, ran.text
    (message,) = ran.failed.values()
    assert "heap-buffer-overflow" in message
    assert "faults.cpp:" in message
    assert "OverrunsItself" in message
    assert "test_forward[numpy-Right-float64]" in ran.passed
