"""The plugin for runs that begin at the root: `pytest .` and `pytest tests`.

The suites load it by their own `suites/pytest.ini`, in a clone and in an installation.
"""

pytest_plugins = ["d5test.plugin", "pytester"]
