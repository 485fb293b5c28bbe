"""Two convolutions of equal speed, for backends of tests: one sums in float32, one in bfloat16.

PyTorch's own sums in bfloat16 on some processors and in float32 on others.
"""

CONV = """
conv = Torch.rows["Conv"].call

def fine(op, *arrays):
    "Sums in float32 and rounds once, on every processor."
    return conv(op, *(a.float() for a in arrays)).to(arrays[0].dtype)

def coarse(op, x, w, b=None):
    "Sums the taps of the kernel in bfloat16."
    if x.dtype != torch.bfloat16:
        return conv(op, x, w, b)
    y, taps = 0, w.flatten(2)
    for k in range(taps.shape[2]):
        one = torch.zeros_like(taps)
        one[..., k] = taps[..., k]
        y = y + fine(op, x, one.reshape(w.shape))
    return y if b is None else y + b.reshape(-1, *[1] * (y.ndim - 2))
"""
