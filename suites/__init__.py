"""The suites, one for each level: `pytest suites/operators --backend=torch`."""
