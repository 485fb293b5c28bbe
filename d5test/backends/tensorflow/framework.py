"""TensorFlow itself, quiet, with the number of threads that was asked for."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if "OMP_NUM_THREADS" in os.environ:
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", os.environ["OMP_NUM_THREADS"])

import tensorflow as tf

__all__ = ["tf"]
