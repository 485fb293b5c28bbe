"""Error bars, derivatives, noise and rounding for reference code that knows nothing of them.

Each is a kind of array that NumPy's functions accept: `Bar` (a value and a running bound of its
error), `Dual` (a value and its directional derivative) and `Perturbed` (a value, off by one
rounding error per primitive, or rounded to a lower precision); `tracked` is what they share.

    arithmetic   the classes F, P and S, and what a rounding costs in each
    elementary   primitives, their derivatives and errors; `functions`: NumPy's, made of them
    bars         running error bounds; `bar_rules` and `chains`, `infinities`
    bounds       what the reference expects, with bars, as stored in the dtype under test
    judgement    a backend's result compared with its bar, and what that bar could have rejected
    tape         the gradients of a formula, from its forward alone
    derivatives  bars of forward mode and second derivatives; `proof`: of a `backward`
    ensemble     compositions, judged by the spread of noisy references
    rounding     whether results are rounded to nearest
"""
