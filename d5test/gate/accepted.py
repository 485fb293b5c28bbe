"""Slowdowns that are known and accepted: rows with reason and expiry.

    [[accepted]]
    benchmark = "gemm-m64-n1-k1216-nn-forward-torch"   # as the table names it
    metric = "time"
    up_to = 0.08                                       # 8% worse, and no more
    reason = "the new kernel is deterministic"
    owner = "kernels@example.org"
    expires = 2027-03-31

Requirements: a row that cannot be read is one line; one that has expired accepts nothing.
"""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from pathlib import Path
from typing import Any, Self

from d5test.compare.decision import ACCEPTED, Decision
from d5test.compare.numbers import quoted
from d5test.compare.output import short


class Unacceptable(ValueError):
    """A file of accepted slowdowns that cannot be used, and why, in one line."""


@dataclass(frozen=True)
class Accepted:
    """A row. `up_to`: the largest relative change for the worse that it accepts."""

    benchmark: str
    metric: str
    up_to: float
    reason: str
    owner: str
    expires: date

    @classmethod
    def of(cls, row: Any) -> Self:
        """A row of the file. Raises `Unacceptable`."""
        wanted = {f.name for f in fields(cls)}
        if not isinstance(row, dict) or set(row) != wanted:
            raise Unacceptable(f"a row has the fields {', '.join(sorted(wanted))}")
        accepted = cls(**row)
        for name in ("benchmark", "metric", "reason", "owner"):
            if not isinstance(row[name], str) or not row[name].strip():
                raise Unacceptable(f"{name} of a row is empty or no text")
        if isinstance(accepted.up_to, bool) or not isinstance(accepted.up_to, int | float):
            raise Unacceptable(
                f"up_to of {quoted(accepted.benchmark)} is not a number; 0.08 is 8%"
            )
        if not 0 < accepted.up_to < 1:
            raise Unacceptable(
                f"up_to of {quoted(accepted.benchmark)} is {quoted(accepted.up_to)}; 0.08 is 8%"
            )
        if type(accepted.expires) is not date:
            raise Unacceptable(
                f"expires of {quoted(accepted.benchmark)} is not a date, as 2027-03-31"
            )
        return accepted

    def speaks_of(self, decision: Decision) -> bool:
        """Whether it is about this metric of this benchmark."""
        values = decision.values
        return (self.benchmark, self.metric) == (short(values.benchmark), values.metric.name)


def read(path: Path) -> list[Accepted]:
    """The rows of a file. Raises `Unacceptable`."""
    try:
        content = tomllib.loads(path.read_bytes().decode())
        rows = content.get("accepted")
        if not isinstance(rows, list) or set(content) != {"accepted"}:
            raise Unacceptable("it is a list of rows [[accepted]] and nothing else")
        return [Accepted.of(row) for row in rows]
    except OSError as error:
        raise Unacceptable(f"{path}: {error.strerror}") from None
    except Unacceptable as error:
        raise Unacceptable(f"{path}: {error}") from None
    except RecursionError:
        raise Unacceptable(f"{path}: is not a list of rows: it is nested too deep") from None
    except ValueError as error:  # that of TOML, of UTF-8, or of a number of too many digits
        raise Unacceptable(f"{path}: is not TOML: {' '.join(str(error).split())}") from None


def unused(rows: Iterable[Accepted], benchmarks: Iterable[str]) -> list[str]:
    """Benchmarks that rows speak of and that were not measured."""
    known = {short(name) for name in benchmarks}
    return [row.benchmark for row in rows if row.benchmark not in known]


def accept(decisions: Sequence[Decision], rows: Sequence[Accepted], today: date) -> list[Decision]:
    """The decisions, those that are worse and accepted say so."""
    return [_accepted(decision, rows, today) for decision in decisions]


def _accepted(decision: Decision, rows: Sequence[Accepted], today: date) -> Decision:
    if decision.verdict != "worse" or decision.change is None:
        return decision
    for row in rows:
        if not row.speaks_of(decision) or decision.harm > row.up_to:
            continue
        if row.expires < today:
            late = f"accepted until {row.expires}, which is over ({row.owner})"
            return replace(decision, reason=f"{decision.reason}; {late}")
        why = f"accepted until {row.expires} ({row.owner}): {row.reason}"
        return replace(decision, verdict=ACCEPTED, reason=why)
    return decision
