"""`python -m d5test`: the command."""

import sys

from d5test.cli import main

sys.exit(main())
