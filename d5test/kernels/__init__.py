"""Which functions of a framework's native libraries the cases of the suites enter.

`probe` sets breakpoints in a worker; `coverage` counts what drawn cases enter and what real ones
(`problems`) do; `symbols` makes names readable, `output` shows the result. The command is
`d5test coverage --kernels`.
"""
