"""An optimizer that a stranger's backend names is judged in the place of the framework's own."""

from pathlib import Path

import pytest

from tests.nightly import at_night
from tests.training.test_mistakes import python

SUITE = Path(__file__).parents[2] / "suites" / "training"
DOCS = Path(__file__).parents[2] / "docs" / "training.md"
WRONG = """
    def step(self, gradients):
        self._optimizer.param_groups[0]["lr"] *= 2
        super().step(gradients)
        self._optimizer.param_groups[0]["lr"] /= 2
"""
FORGETFUL = """
    def restore(self, t, slots):
        several = {name: tuple(0 * x for x in kept) for name, kept in slots.items()}
        super().restore(t, several if len(slots) > 1 else slots)
"""
TOLD = {
    "": "",
    WRONG: "looks like  a step 2 times as long, as with lr 0.25",
    FORGETFUL: "native, resumed after step 8: the losses are wrong on",
}


def documented() -> str:
    """The file that the documentation shows."""
    section = DOCS.read_text().partition("## Another implementation")[2]
    block = section[section.index("    from ") :].partition("\n\nIt is")[0]
    return "\n".join(line.removeprefix("    ") for line in block.splitlines())


@pytest.mark.parametrize(
    "wrong",
    ["", at_night(WRONG), at_night(FORGETFUL)],
    ids=["right", "doubled", "forgetful"],
)
def test_the_documented_file_is_judged(tmp_path: Path, wrong: str) -> None:
    text = documented().replace("\n\nclass Mine", f"\n{wrong}\n\nclass Mine")
    assert wrong in text
    assert text.count("class ") == 2
    (tmp_path / "mine.py").write_text(text)
    ran = python(
        tmp_path, "-m", "pytest", SUITE, "--backend=./mine.py:Mine", "--optimizer=Momentum",
        "--examples=10", "-k", "native or step",
    )  # fmt: skip
    assert ran.returncode == bool(wrong), ran.stdout + ran.stderr
    assert TOLD[wrong] in ran.stdout
    assert "Traceback" not in ran.stdout + ran.stderr
    assert ("test_step" in ran.stdout.partition("short test summary")[2]) == (wrong == WRONG)
