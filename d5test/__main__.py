"""`python -m d5test`: the command."""

from __future__ import annotations

import sys

from d5test.cli import main

sys.exit(main())
