"""The two versions: interpreters with a framework each, or backends."""

from dataclasses import dataclass

from d5test.client.registry import interpreter, resolve

OLD, CONTROL, NEW = "old", "control", "new"
ARMS = (OLD, CONTROL, NEW)
"""Who is timed in turns. The control is the old version once more: it tells the noise."""


@dataclass(frozen=True)
class Versions:
    """Old and new: the path of a Python (or its environment), or a backend as `./file.py:Name`.

    Raises `UnknownBackend` for what is neither.
    """

    old: str
    new: str

    def __post_init__(self) -> None:
        for version in (self.old, self.new):
            if names_backend(version):
                resolve(version)
            else:
                interpreter(version)

    def name(self, arm: str, backend: str) -> str:
        """What the backend is called in an arm."""
        version = self.new if arm == NEW else self.old
        return version if names_backend(version) else f"{backend}@{version}"


def names_backend(version: str) -> bool:
    """Whether a version is a backend of its own, and no interpreter for the one that is named."""
    return ":" in version
