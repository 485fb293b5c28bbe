"""Level 1: networks. An ONNX graph of level-0 operators, edited, run on a backend, and judged.

graph, check       nodes and tensors as values; what makes a graph whole
model              ONNX models in and out, in one operator set; files read safely
network            `Network`: a graph that is edited one sound step at a time
plan               a graph for inputs of given shapes, as it travels to a backend
executor           `Executor`: a network on a backend, with events
reference          forward and backward on NumPy arrays of any kind
whole, nodes       the two judgements: by an ensemble, and node by node with bars
built, zoo         networks made by code, seeded
external           models from the onnx package, with their expected outputs
"""

from __future__ import annotations

from d5test.networks.graph import BrokenGraph, Graph, Node, Value
from d5test.networks.model import UnsafeModel
from d5test.networks.network import Network

__all__ = ["BrokenGraph", "Graph", "Network", "Node", "UnsafeModel", "Value"]
