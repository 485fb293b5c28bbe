"""What comes of a judgement, on one path for all four levels, the front door and the gate.

    fault        `Fault`: what a backend did wrong, and the evidence
    tally        `Tally`: how many cases, by outcome, of one check on one cell; `causes`: the
                 faults of a run, grouped by what probably caused them
    roundings    how the results of a cell are rounded, over its cases
    assessment   `Assessment`: one test, from its judgements to its conclusion

Without pytest: `d5test.fixtures.conclude` tells pytest, the front door tells anybody's test.
"""
