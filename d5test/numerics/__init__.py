"""Error bars, derivatives, noise and rounding for reference code that knows nothing of them.

Each is a kind of array that NumPy's functions accept: `Bar` (a value and a running bound of its
error), `Dual` (a value and its directional derivative), `Noise` (a value, perturbed by one
rounding error a primitive) and `Rounded` (a value in a lower precision). `judgement` compares a
backend's result with a bar, `controls` asks whether that bar would have told a wrong one.
"""
