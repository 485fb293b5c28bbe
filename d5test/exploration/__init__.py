"""`explore`: Hypothesis around one check on one cell (operator x dtype) of one backend.

Without pytest: the suites' plugin and the front door explore alike. Nothing is imported here:
collecting tests needs no Hypothesis, which takes as long to import as all else together.
"""
