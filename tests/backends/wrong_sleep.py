"""A backend whose import does not end."""

import time

time.sleep(60)
