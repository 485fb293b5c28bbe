"""Kernels that another version runs are told beside the time, and decide nothing."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from d5test.compare.reading import read_sides
from d5test.report import Report, page, verify
from tests.compare.files import benchmark, name, write

Compared = Callable[..., Any]
JIT, BRGEMM = "gemm:jit", "matmul:brg_matmul"


def versions(
    folder: Path, old: Sequence[Sequence[str]], new: Sequence[Sequence[str]], factor: float = 1.0
) -> list[str]:
    """OLD and NEW: for each run the kernels of the one benchmark."""
    for side, runs, slower in (("old", old, 1.0), ("new", new, factor)):
        for k, kernels in enumerate(runs):
            least = 1e-3 * slower * (1 + k / 500)
            write(folder / f"{side}{k}.json", [benchmark(name(0), least, kernels=kernels)])
    return [str(folder / f"{side}*.json") for side in ("old", "new")]


def test_a_changed_kernel_is_told_beside_the_time(tmp_path: Path, compared: Compared) -> None:
    given = versions(tmp_path, [["aten::mm", JIT]] * 3, [["aten::mm", BRGEMM]] * 3, factor=1.3)
    answer = compared(*given)
    assert answer.found["kernels"] == [{"name": name(0), "gone": [JIT], "come": [BRGEMM]}]
    line = f"gemm-0-forward-torch (time +30.0%): {JIT} -> {BRGEMM}"
    text = compared(*given, "--format=text").out.splitlines()
    assert text[text.index("kernels changed") + 1] == f"  {line}"
    assert (
        f"- {line.replace('_', '&#95;').replace('>', '&gt;')}"
        in compared(*given, "--format=markdown").out
    )


def test_it_decides_nothing(tmp_path: Path, compared: Compared) -> None:
    answer = compared(*versions(tmp_path, [[JIT]] * 3, [[BRGEMM]] * 3))
    assert (answer.status, answer.found["verdict"]) == (0, "passed")
    assert len(answer.found["kernels"]) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([[JIT]] * 2, [[JIT]] * 2),
        ([[JIT], [BRGEMM]], [[BRGEMM], [JIT]]),  # both versions run both
        ([[]] * 2, [[BRGEMM]] * 2),  # the old one did not tell
        ([[JIT]] * 2, [[]] * 2),
    ],
)
def test_nothing_is_told_of_the_same_kernels(
    old: list[list[str]], new: list[list[str]], tmp_path: Path, compared: Compared
) -> None:
    given = versions(tmp_path, old, new)
    assert compared(*given).found["kernels"] == []
    assert "kernels changed" not in compared(*given, "--format=text").out


def test_names_are_shown_as_text_and_cut(tmp_path: Path, compared: Compared) -> None:
    hostile = ["\x1b[31m<script>|", "x" * 10_000, *(f"k{i}" for i in range(500))]
    given = versions(tmp_path, [[JIT]] * 2, [hostile] * 2)
    (exchange,) = compared(*given).found["kernels"]
    assert len(exchange["come"]) == 64
    assert max(map(len, exchange["come"])) == 160
    text = compared(*given, "--format=text").out
    assert "\x1b[31m" not in text
    assert "\\x1b[31m<script>|" in text
    assert "and 61 more" in text
    assert "<script>" not in compared(*given, "--format=markdown").out


def test_a_page_holds_them(tmp_path: Path) -> None:
    given = versions(tmp_path, [[JIT]] * 3, [[BRGEMM]] * 3)
    text = page(Report(*read_sides(given, 8)))
    assert "kernels changed" in text
    assert verify(text).differences == ()
