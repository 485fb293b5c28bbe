"""`--collect-only` costs little more than importing the framework.

Hypothesis' pytest plugin imports Hypothesis at the end of every run, to look for statistics; where
no test ran there are none.
"""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Leave that plugin out where tests are only listed, unless it was asked for something."""
    option = config.option
    if option.collectonly and not getattr(option, "hypothesis_profile", None):
        config.pluginmanager.unregister(name="hypothesispytest")
