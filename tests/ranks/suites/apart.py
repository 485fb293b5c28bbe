"""What the ranks do not have in common."""

import os

import pytest

from d5test.distributed.provider import launched

launch = launched()
rank = 0 if launch is None else launch.rank
if rank and os.environ["APART"] == "import":
    raise ImportError("planted at the import")


@pytest.mark.parametrize("number", [rank if os.environ["APART"] == "tests" else 7])
def test_number(number: int) -> None:
    if rank and os.environ["APART"] == "exit":
        pytest.exit("planted exit", 6)
