"""Anything that implements ONNX's own backend interface.

`backend` is the adapter; `single_node` makes an operator a model of one node.
"""

from __future__ import annotations

from d5test.backends.onnx.backend import OnnxBackend

__all__ = ["OnnxBackend"]
