"""Level 1: networks, whole and node by node."""
