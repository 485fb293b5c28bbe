"""The devices that a backend could run on, asked in its worker. NumPy and the framework only."""

from __future__ import annotations

from d5test.backends.base import Backend


def devices(backend: Backend) -> list[str]:
    """As `Backend.devices` names them, and as `--device` takes them."""
    return list(type(backend).devices())
