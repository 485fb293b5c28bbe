"""A backend whose framework is not there."""

import a_framework_that_nobody_wrote  # noqa: F401
