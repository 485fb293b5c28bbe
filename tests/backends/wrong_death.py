"""A backend whose framework dies while it is imported."""

import os

os.abort()
