"""The reference of every operator of faults.cpp: y = 3 x."""

from d5test.native import CustomPythonOp


class Right(CustomPythonOp):
    def forward(self, inputs):
        return 3 * inputs[0]

    def backward(self, grads, fwd_inputs, fwd_outputs):
        return 3 * grads[0]


for name in (
    "WritesBehind", "WritesBefore", "Unwritten", "UnwrittenGradient", "WrongGradient",
    "IgnoresStrides", "ReadsRows", "Leaks", "KeepsWorkspace", "OverwritesInput", "Aborts",
    "Throws", "ReadsUnread", "OverrunsItself",
):  # fmt: skip
    globals()[name] = type(name, (Right,), {})
