"""Names of what XLA runs, in the text of a compiled module."""

import re
from collections.abc import Iterator

INSTRUCTION = re.compile(
    r"^\s*(?:ROOT )?%?([\w.-]+) = .*?(?<=\s)([a-z][a-z0-9-]*)\(", re.MULTILINE
)
TARGET = re.compile(r'custom_call_target="([^"]+)"')
MOVED = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "copy")
)
"""Instructions that compute nothing."""


def instructions(text: str) -> Iterator[str]:
    """What the entry computation runs, in order: custom calls by what they call, fusions by name.

    >>> list(instructions("ENTRY %main {\\n  %dot.1 = f32[2]{0} dot(%x, %y)\\n}"))
    ['dot']
    """
    entry = text.partition("\nENTRY ")[2] or text.partition("ENTRY ")[2]
    for line in entry.partition("\n}")[0].splitlines():
        found = INSTRUCTION.match(line)
        if found is None or found[2] in MOVED:
            continue
        target = TARGET.search(line)
        if target:
            yield f"{found[2]}:{target[1]}"
        else:
            fused = re.sub(r"\.\d+$", "", found[1])
            yield f"fusion:{fused}" if found[2] == "fusion" else found[2]
