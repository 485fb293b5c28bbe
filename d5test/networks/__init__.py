"""Level 1: networks. An ONNX graph of level-0 operators, edited, run on a backend, and judged.

graph         nodes and tensors as values
model         ONNX models in and out, in one operator set; files read safely
network       `Network`: a graph that is edited one sound step at a time
specialise    a graph for inputs of given shapes
flow          a network with control flow or sequences, run in parts; call, control, sequences
executor      `Executor`: a network on a backend, with events
whole, nodes  the two judgements: by an ensemble of references, and node by node with bars
timed         a network timed on a backend
zoo           networks made by code, seeded
external      models from the onnx package, with their expected outputs
"""

from d5test.networks.graph import BrokenGraph, Graph, Node, Value
from d5test.networks.model import UnsafeModel
from d5test.networks.network import Network

__all__ = ["BrokenGraph", "Graph", "Network", "Node", "UnsafeModel", "Value"]
