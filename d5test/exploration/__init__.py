"""Hypothesis around one check on one cell (operator x dtype) of one backend. Without pytest.

    explore   `Exploration` draws cases and finds the smallest fault of each kind
    tally     `Tally` counts what came of them
    profile   Hypothesis' settings

The suites' plugin and the front door explore alike. Nothing is imported here: collecting tests
needs the tally, and Hypothesis takes as long to import as all else together.
"""
