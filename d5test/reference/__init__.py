"""References: operators as NumPy formulas, forward and backward, and ONNX nodes of them."""
