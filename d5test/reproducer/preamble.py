"""What a reproducer does first, before any framework is imported. Python 3.9's library alone.

Copied into reproducers, never called here. Requirements: exit status 2 if the fault cannot be
tried at all, a missing framework among the reasons; a crash or a hang is an answer.
"""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
import traceback
from typing import Any

SECONDS = 60
"""After this long without an answer it hangs."""


def unable(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Whatever is raised unexpectedly: the fault cannot be tried, which is exit status 2."""
    if not isinstance(error, ImportError):
        traceback.print_exception(kind, error, trace)
    print(f"cannot be tried: {kind.__name__}: {error}", flush=True)
    os._exit(2)


def watched() -> None:
    """Go on in a process of its own, whose end is the answer."""
    if "--child" in sys.argv:
        faulthandler.enable()
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        return
    status = subprocess.run([sys.executable, os.path.abspath(__file__), "--child"]).returncode
    if status == 1:
        print(f"still there, if nothing was said above: no answer within {SECONDS} seconds")
    elif status not in (0, 2):
        print(f"still there: the process died with status {status}")
        status = 1
    sys.exit(status)
