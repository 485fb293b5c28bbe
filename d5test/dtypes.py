"""ONNX's numbers of dtypes, `TensorProto.DataType`, and the names that NumPy and ml_dtypes use.

Python alone: workers import it.
"""

from collections.abc import Mapping

NAMES: Mapping[int, str] = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16",
    17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz",
    21: "uint4", 22: "int4", 23: "float4_e2m1fn", 24: "float8_e8m0fnu", 25: "uint2",
    26: "int2",
}  # fmt: skip
"""Of those that are converted: not text, and not complex numbers."""
NUMBERS: Mapping[str, int] = {name: number for number, name in NAMES.items()}
EIGHT_BITS = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
"""Floating-point formats of eight bits, in which ONNX saturates or does not."""
FOUR_BITS = ("int4", "uint4", "float4_e2m1fn")
SCALES = "float8_e8m0fnu"
"""Powers of two, by which blocks of numbers are multiplied."""

WHOLE = ("int64", "int32", "uint8", "int8", "bool", "int16", "uint16", "uint32", "uint64")
"""Integers and booleans, those of networks first."""
