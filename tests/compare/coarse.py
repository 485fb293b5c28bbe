"""The source of a convolution that is as fast and less accurate, for backends of tests."""

CONV = """
conv = Torch.rows["Conv"].call

def coarse(op, x, w, b=None):
    "Sums the taps of the kernel in bfloat16."
    if x.dtype != torch.bfloat16:
        return conv(op, x, w, b)
    y, taps = 0, w.flatten(2)
    for k in range(taps.shape[2]):
        one = torch.zeros_like(taps)
        one[..., k] = taps[..., k]
        y = y + conv(op, x, one.reshape(w.shape))
    return y if b is None else y + b.reshape(-1, *[1] * (y.ndim - 2))
"""
