"""A known failure, and all those of one backend.

`d5test.exploration` asks what they cover, `d5test.checks.inquiry` for refusals and models, and
`d5test.fixtures.explore` runs their pinned cases.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from d5test.case import Case
from d5test.known.where import holds
from d5test.numerics.arithmetic import ErrorModel


@dataclass(frozen=True)
class KnownFailure:
    """One fault of a framework.

    Without `model` and `raises` the cases for which `where` holds are not judged at all: they are
    masked. With `model` they are judged by it. With `raises` a case that raises these
    words, or dies with them, counts as unsupported.

    reason      what is wrong, in one line
    operators, dtypes
    checks      those that the pinned cases fail; a mask holds in these alone
    pinned      cases that must still fail, each with its check, in each dtype
    versions    the framework's, as a PEP 440 specifier; empty: all
    backends    names; empty: every backend that the file is read for
    devices     words, one of which stands in the device's name (`AVX2`, say); empty: all devices
    where       conditions on cases, see `d5test.known.where`; `None`: the pinned cases alone for a
                mask, every case otherwise
    model       how much is known to be wrong
    raises      words of the exception by which a case is refused, or the signal that ends it
    extent      how bad it is, as it was measured
    witnesses   what independent computations gave
    reproducer  a few lines of Python that show it with the framework alone
    prints      what they print; or raise, a part of it
    source      the file, and the number of the row
    replaced    operators, each with a form or none, for which the backend has other code than that
                of which this speaks
    """

    reason: str
    operators: tuple[str, ...]
    dtypes: tuple[str, ...]
    checks: tuple[str, ...]
    pinned: tuple[Pinned, ...]
    owner: str
    expires: dt.date
    source: str
    versions: str = ""
    link: str = ""
    backends: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    where: Mapping[str, Any] | None = None
    model: ErrorModel | None = None
    raises: str = ""
    extent: str = ""
    witnesses: tuple[str, ...] = ()
    reproducer: str = ""
    prints: str = ""
    replaced: frozenset[tuple[str, str]] = field(default=frozenset(), compare=False)

    @property
    def masks(self) -> bool:
        """Whether what it covers is not judged."""
        return self.model is None and not self.raises

    @property
    def expired(self) -> bool:
        """Whether somebody should have dealt with it by now."""
        return self.expires < dt.date.today()

    def speaks_of(self, about: Any) -> bool:
        """Whether it is about this backend (under whatever interpreter), version and device.

        `about` is what is known of the backend (`BackendInfo`). What is known of one holds for its
        subclasses, too.
        """
        names = {about.name.partition("@")[0], about.base}
        if self.backends and names.isdisjoint(self.backends):
            return False
        if self.devices and not set(self.devices) & set(re.findall(r"\w+", about.device_name)):
            return False
        try:
            return SpecifierSet(self.versions).contains(Version(about.version), prereleases=True)
        except InvalidVersion:
            return True

    def speaks_of_code(self, case: Case) -> bool:
        """Whether it is about what computes this case."""
        return (case.op.name, case.form) not in self.replaced

    def holds_for(self, case: Case) -> bool:
        """Whether a case is of this failure, whatever the check."""
        if case.op.name not in self.operators or case.dtype not in self.dtypes:
            return False
        if not self.speaks_of_code(case):
            return False
        if self.where is None and self.masks:
            return any(case == pinned.case for pinned in self.pinned)
        return self.where is None or holds(self.where, case)

    def covers(self, case: Case, check: str) -> bool:
        """Whether it keeps this case from being judged."""
        if not self.masks or check not in self.checks or not self.speaks_of_code(case):
            return False
        return self.holds_for(case) or any(case == pinned.case for pinned in self.pinned)


@dataclass(frozen=True)
class Pinned:
    """A case that must fail a check."""

    check: str
    case: Case

    @property
    def id(self) -> str:
        """How it stands in a test's id."""
        return f"{self.check}-{self.case.op.name}-{self.case.dtype}"


@dataclass(frozen=True)
class Known:
    """The known failures of one backend."""

    rows: tuple[KnownFailure, ...] = ()

    @property
    def pinned(self) -> Iterator[tuple[KnownFailure, Pinned]]:
        """Every case that must still fail, with its row."""
        for row in self.rows:
            yield from ((row, one) for one in row.pinned if row.speaks_of_code(one.case))

    def covers(self, case: Case, *checks: str) -> bool:
        """Whether this case is not to be judged by a check, or by one that asks all of these."""
        return any(row.covers(case, check) for row in self.rows for check in checks)

    def of_other_code(self, case: Case) -> str:
        """The reason of a row that is about other code for this case; empty if there is none."""
        rows = zip(self.rows, self.of_ours.rows, strict=True)
        return next((ours.reason for row, ours in rows
                     if not row.speaks_of_code(case) and ours.holds_for(case)), "")  # fmt: skip

    @property
    def of_ours(self) -> Known:
        """What is known of the backend as if no row of d5test's was replaced."""
        return Known(tuple(replace(row, replaced=frozenset()) for row in self.rows))

    def models(self, case: Case) -> tuple[ErrorModel, ...]:
        """The error models that hold for this case."""
        return tuple(row.model for row in self.rows if row.model and row.holds_for(case))

    def refusal(self, case: Case, raised: str) -> str:
        """The reason of the row that knows of this exception; empty if there is none."""
        rows = (row for row in self.rows if row.raises and row.raises in raised)
        return next((row.reason for row in rows if row.holds_for(case)), "")


@contextmanager
def set_aside(client: Any) -> Iterator[None]:
    """Within: the backend is judged as if nothing were known of it."""
    with taken_for(client, Known()):
        yield


@contextmanager
def taken_for(client: Any, known: Known) -> Iterator[None]:
    """Within: this is what is known of the backend."""
    before, client.known = client.known, known
    try:
        yield
    finally:
        client.known = before


def in_dtype(case: Case, dtype: str) -> Case:
    """The case with another floating-point dtype under test."""
    inputs: Sequence[Any] = case.inputs
    changed = (
        replace(x, dtype=dtype) if x is not None and x.dtype == case.dtype else x for x in inputs
    )
    return replace(case, inputs=tuple(changed))
