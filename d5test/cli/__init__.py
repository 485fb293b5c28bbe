"""The command `d5test`: `main` and a module a subcommand."""

from __future__ import annotations

from d5test.cli.command import main

__all__ = ["main"]
