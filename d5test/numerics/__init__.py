"""Error bars, derivatives, noise and rounding for reference code that knows nothing of them.

Each is a kind of array that NumPy's functions accept: `Bar` (a value and a running bound of its
error), `Dual` (a value and its directional derivative) and `Perturbed` (a value, off by one
rounding error a primitive, or rounded to a lower precision). `judgement` compares a backend's
result with a bar, and asks whether that bar would have told a wrong one.
"""
