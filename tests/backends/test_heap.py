"""Memory that nobody wrote to is the same rubbish each time while results are judged."""

import platform
import subprocess
import sys
import weakref

import pytest

from d5test.worker import machine

FRESH = """
import numpy as np
from d5test.worker import machine

def fresh():
    return int(np.count_nonzero(np.empty(40_000, np.uint8) == 0x7F))

machine.poison()
poisoned = fresh()
machine.keep()
print(poisoned, fresh())
"""

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc's mallopt")


def test_fresh_memory_is_poisoned_until_calls_are_timed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FRESH], capture_output=True, text=True, check=True, timeout=120
    )
    poisoned, kept = map(int, done.stdout.split())
    assert poisoned == 40_000
    assert kept < 40_000


def test_pads_move_what_is_made_next_and_only_the_last_are_held() -> None:
    machine.pad(None, 1 << 20)
    first = weakref.ref(machine._pads[-1])
    for _ in range(machine.PADS):
        assert first() is not None
        machine.pad(None, 1 << 20)
    assert first() is None
    assert [pad.nbytes for pad in machine._pads] == [1 << 20] * machine.PADS
