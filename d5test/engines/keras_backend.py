"""Keras, which has one backend in a process: that of its first import."""

from __future__ import annotations

import os
import sys
from typing import Any

from d5test.backends.base import Unsupported


def imported() -> Any:
    """Keras, as the process has it."""
    import keras

    return keras


def prefer(backend: str) -> None:
    """Import Keras with this backend, unless it is imported already. The environment is as before.

    TensorFlow imports Keras, too: whoever wants another backend must be imported before.
    """
    if "keras" in sys.modules:
        return
    before = os.environ.get("KERAS_BACKEND")
    os.environ["KERAS_BACKEND"] = backend
    try:
        imported()
    finally:
        if before is None:
            del os.environ["KERAS_BACKEND"]
        else:
            os.environ["KERAS_BACKEND"] = before


def demand(backend: str) -> Any:
    """Keras with this backend. Raises `Unsupported` if the process has it with another one."""
    prefer(backend)
    keras = imported()
    has = keras.backend.backend()
    if has != backend:
        raise Unsupported(
            f"Keras has the backend {has} in this process, and needs {backend} here: "
            "name the engines of one of them in a run of its own"
        )
    return keras
