"""The performance budget of level 0, measured.

`python -m tests.budget` measures every line as a comparison inside one run, prints it and writes
docs/budget.md. `measure` says how: arms in turn, pairs, intervals. `calls`, `cases`, `bars`,
`examples`, `references`, `native_bridges`, `native_convolutions` and `collecting` are the lines.
"""
