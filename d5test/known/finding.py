"""A fault of a framework that no case of an operator shows: of training, ranks, or memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions, version

from packaging.specifiers import SpecifierSet


@dataclass(frozen=True)
class Finding:
    """One such fault. It stands in docs/found.md, and its reproducer is run at night.

    about        the function or class that is wrong
    reason       what is wrong, in one line
    here         what d5test does about it
    package      that which is imported, and whose `versions` are meant
    versions     a PEP 440 specifier
    owner, link  who should mend it
    extent       how bad it is
    reproducer   lines of Python that show it with the framework alone
    prints       what they print; or raise, a part of it; or the signals of which the process dies
    environment  variables that they need
    extension    an instruction set without which the processor runs other code; empty: none
    """

    about: str
    reason: str
    here: str
    package: str
    versions: str
    owner: str
    reproducer: str
    prints: str
    link: str = ""
    extent: str = ""
    extension: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def installed(self) -> bool:
        """Whether the package is here, in one of the versions."""
        names = packages_distributions().get(self.package, ())
        versions = SpecifierSet(self.versions)
        return any(versions.contains(version(name), prereleases=True) for name in names)
