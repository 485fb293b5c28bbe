"""Rows of known failures from a file.

Requirements: nothing in a file is code; whatever is wrong with one is found when it is read, and
is one line with the file, the row, and what to write instead.
"""

import ast
import datetime as dt
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from d5test.case import FLOATS, Case, Operator, Tensor
from d5test.files import folder_of_suites
from d5test.known.failure import Known, KnownFailure, Pinned, in_dtype
from d5test.known.finding import Finding
from d5test.known.where import validate
from d5test.names import hint
from d5test.numerics.arithmetic import ErrorModel, format_of
from d5test.numerics.elementary import TABLE
from d5test.reference.formulas import FORMULAS

Entry = TypeVar("Entry")
Operators = Mapping[str, type[Operator]]
Checks = Mapping[str, Any]
LARGEST = 4 * 2**20
"""Bytes of a file that is read at all."""
TEXTS = ("reason", "owner", "link", "versions", "raises", "extent", "reproducer", "prints")
LISTS = ("operators", "dtypes", "checks", "backends", "devices", "witnesses")
REQUIRED = ("reason", "operators", "dtypes", "checks", "cases", "owner", "expires")
KEYS = (*TEXTS, *LISTS, "cases", "expires", "where", "model")
PINNED = ("case", "checks", "dtypes")
FINDING = ("about", "reason", "here", "package", "versions", "owner", "reproducer", "prints")
"""What a finding must have."""
FINDING_TEXTS = (*FINDING, "link", "extent", "extension")
FUNCTIONS = tuple(ufunc.__name__ for ufunc in TABLE)
CONSTANTS = {"inf": math.inf, "nan": math.nan}
LONGEST_CASE = 100_000
"""Characters of a repr that is read at all."""
LARGEST_INPUT = 10**6
"""Elements of an input."""


class Unreadable(ValueError):
    """A file that cannot be read; the text is one line."""


class Shipped(NamedTuple):
    """What comes with the suites for a framework."""

    preamble: str
    """What each reproducer begins with."""
    rows: Sequence[KnownFailure]
    findings: Sequence[Finding]


def read(file: str | Path, operators: Operators, checks: Checks) -> list[KnownFailure]:
    """The rows of a file. Raises `Unreadable`."""
    return _each(Path(file), "known", lambda row, at: _row(row, operators, checks, at))


def read_findings(file: str | Path) -> list[Finding]:
    """The findings of a file. Raises `Unreadable`."""
    return _each(Path(file), "finding", lambda row, at: _finding(row))


def _each(path: Path, key: str, made: Callable[[Any, str], Entry]) -> list[Entry]:
    """What is made of each table of the file that has this key."""
    content = _content(path)
    if set(content) - {"known", "preamble", "finding"}:
        raise Unreadable(f"known failures {path}: expected [[known]] tables and nothing else")
    rows, entries = content.get(key, []), []
    if not isinstance(rows, list):
        raise Unreadable(f"known failures {path}: expected [[{key}]] tables, not {rows!r:.60}")
    for number, row in enumerate(rows, 1):
        at = f"{path}, {'row' if key == 'known' else key} {number}"
        try:
            if not isinstance(row, dict):
                raise ValueError(f"expected a table, [[{key}]], not {row!r:.60}")
            entries.append(made(row, at))
        except ValueError as error:
            raise Unreadable(f"known failures {at}: {' '.join(str(error).split())}") from None
    return entries


def shipped(framework: str) -> Path:
    """The file of known failures that comes with the suites for this framework."""
    return folder_of_suites() / "known" / f"{framework}.toml"


def known_of(about: Any, checks: Checks) -> Known:
    """The known failures of a backend that come with the suites."""
    from d5test.reference.operators import OPERATORS

    file = shipped(about.framework)
    rows = read(file, OPERATORS, checks) if file.exists() else []
    return Known(tuple(row for row in rows if row.speaks_of(about)))


def shipped_files(checks: Checks) -> dict[str, Shipped]:
    """What comes with the suites, by framework."""
    from d5test.reference.operators import OPERATORS

    return {
        path.stem: Shipped(
            str(_content(path).get("preamble", "")),
            read(path, OPERATORS, checks),
            read_findings(path),
        )
        for path in sorted(shipped("").parent.glob("*.toml"))
    }


def _content(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST + 1)
        if len(text) <= LARGEST:
            return tomllib.loads(text.decode())
        reason = f"larger than {LARGEST >> 20} MiB"
    except OSError as error:
        reason = str(error.strerror)
    except RecursionError:
        reason = "brackets are nested too deeply"
    except ValueError as error:  # invalid TOML, invalid UTF-8, a number with too many digits
        reason = " ".join(str(error).split())
    raise Unreadable(f"known failures {path}: {reason}")


def _row(row: Any, operators: Operators, checks: Checks, at: str) -> KnownFailure:
    _only("key", row, KEYS)
    _require(row, REQUIRED)
    texts: dict[str, Any] = {name: _text(row, name) for name in TEXTS}
    lists: dict[str, Any] = {name: _texts(row, name) for name in LISTS}
    _only("operator", lists["operators"], operators)
    _only("dtype", lists["dtypes"], FLOATS)
    _only("check", lists["checks"], checks)
    _require_specifier(texts["versions"])
    where = row.get("where")
    if where is not None:
        if not isinstance(where, dict):
            raise ValueError("where: expected a table of conditions, { axis = 0 }")
        for name in lists["operators"]:
            validate(where, operators[name])
    return KnownFailure(
        **texts,
        **lists,
        pinned=tuple(_pinned(row["cases"], lists, operators, checks)),
        expires=_date(row["expires"]),
        source=at,
        where=where,
        model=_model(row, lists["operators"], operators) if "model" in row else None,
    )


def _finding(row: dict[str, Any]) -> Finding:
    _only("key", row, (*FINDING_TEXTS, "environment"))
    _require(row, FINDING)
    texts = {name: _text(row, name) for name in FINDING_TEXTS}
    _require_specifier(texts["versions"])
    environment = row.get("environment", {})
    if not isinstance(environment, dict):
        raise ValueError('environment: expected a table, { OMP_NUM_THREADS = "2" }')
    return Finding(**texts, environment={name: _text(environment, name) for name in environment})


def _require(row: Mapping[str, Any], names: Iterable[str]) -> None:
    for name in names:
        if not row.get(name):
            raise ValueError(f"{name} is missing")


def _require_specifier(versions: str) -> None:
    try:
        SpecifierSet(versions)
    except InvalidSpecifier as error:
        raise ValueError(f"versions: {error}") from None


def _pinned(
    cases: Any, row: Mapping[str, tuple[str, ...]], operators: Operators, checks: Checks
) -> Iterable[Pinned]:
    """The cases, each in the dtypes and for the checks that it names, or else the row."""
    if not isinstance(cases, list):
        raise ValueError('cases: expected a list, ["Case(...)"]')
    pinned: list[Pinned] = []
    for entry in cases:
        table = {"case": entry} if isinstance(entry, str) else entry
        if not isinstance(table, dict):
            raise ValueError(f'cases: expected "Case(...)", not {entry!r:.60}')
        _only("key of a case", table, PINNED)
        case = case_from(_text(table, "case"), operators)
        if case.op.name not in row["operators"]:
            raise ValueError(f"the case is of {case.op.name}, which operators does not have")
        for name in ("checks", "dtypes"):
            _only(f"one of the row's {name}", _texts(table, name), row[name])
        asked = _texts(table, "checks") or row["checks"]
        dtypes = _texts(table, "dtypes") or row["dtypes"]
        pairs = [pair for pair in product(asked, dtypes) if checks[pair[0]].asks_in(pair[1])]
        if not pairs:
            raise ValueError(f"{', '.join(asked)} does not ask for {', '.join(dtypes)}")
        pinned += [Pinned(check, in_dtype(case, dtype)) for check, dtype in pairs]
    for check in row["checks"]:
        if check not in {entry.check for entry in pinned}:
            raise ValueError(f"no case is pinned for {check}: add one, or leave {check} out")
    return pinned


def _model(row: Mapping[str, Any], names: Iterable[str], operators: Operators) -> ErrorModel:
    model = row["model"]
    if not isinstance(model, dict) or not model:
        raise ValueError('model: expected a table, { arithmetic = "float32" }')
    _only("key of model", model, ("arithmetic", "formula", "ulps", "absolute"))
    for name in ("ulps", "absolute"):
        amounts = model.get(name, {})
        if not isinstance(amounts, dict):
            raise ValueError(f"model: {name} should be a table, {{ exp = 8 }}")
        _only("elementary function", amounts, FUNCTIONS)
        for function, amount in amounts.items():
            number = isinstance(amount, int | float) and not isinstance(amount, bool)
            if not number or not 0 <= amount < math.inf:
                raise ValueError(f"model: {name} of {function}: expected ULPs, not {amount!r:.60}")
    arithmetic, formula = _text(model, "arithmetic"), _text(model, "formula")
    if arithmetic:
        _only("arithmetic", [arithmetic], FLOATS)
        format_of(arithmetic)
    if formula:
        _only("formula", [formula], FORMULAS)
        for name in names:
            if operators[name] not in FORMULAS[formula]:
                raise ValueError(f"model: {formula!r} is not a formula of {name}")
    ulps, absolute = model.get("ulps", {}), model.get("absolute", {})
    return ErrorModel(row["reason"], arithmetic, ulps, absolute, formula)


def _only(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise ValueError for the first name that is not known, with what was probably meant."""
    known = list(known)
    for name in names:
        if name not in known:
            raise ValueError(f"unknown {what} {name!r:.60}: {hint(str(name), known)}")


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name, "")
    if not isinstance(value, str):
        raise ValueError(f"{name}: expected a text, not {value!r:.60}")
    return value


def _texts(row: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = row.get(name, [])
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ValueError(f'{name}: expected a list of texts, ["..."], not {value!r:.60}')
    return tuple(value)


def _date(value: Any) -> dt.date:
    if not isinstance(value, dt.date):
        raise ValueError(f"expires: expected a date, 2027-01-31, not {value!r:.60}")
    return value.date() if isinstance(value, dt.datetime) else value


def case_from(text: str, operators: Operators) -> Case:
    """The case whose repr this is; ValueError with the reason if it is none.

    Nothing is constructed but operators that are given, tensors and the case; nothing is called,
    imported or looked up. What is returned can be run: its inputs have been made once.
    """
    if len(text) > LONGEST_CASE:
        raise ValueError(f"case: longer than {LONGEST_CASE} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        case = _built(tree, {**operators, "Tensor": Tensor, "Case": Case})
    except SyntaxError as error:
        raise ValueError(f"case: not the repr of a case: {error.msg}") from None
    except (RecursionError, MemoryError):
        raise ValueError("case: brackets are nested too deeply") from None
    if not isinstance(case, Case):
        raise ValueError("case: not the repr of a case: it should begin with Case(")
    _require_inputs(case)
    return case


def _require_inputs(case: Case) -> None:
    """Raise ValueError unless the case is an operator and inputs that can be made."""
    if not isinstance(case.op, Operator):
        raise ValueError(f"case: {case.op!r:.60} is not an operator")
    inputs: Any = case.inputs
    if not isinstance(inputs, tuple) or not isinstance(case.seed, int):
        raise ValueError("case: expected Case(Operator(...), (Tensor(...), ...), seed=0)")
    for tensor in (tensor for tensor in inputs if tensor is not None):
        shape = tensor.shape if isinstance(tensor, Tensor) else None
        if not isinstance(shape, tuple) or not all(
            isinstance(side, int) and 0 <= side <= LARGEST_INPUT for side in shape
        ):
            raise ValueError(f"case: expected Tensor((2, 3)), not {tensor!r:.60}")
        if math.prod(shape) > LARGEST_INPUT:
            raise ValueError(f"case: {tensor!r:.60} has more than {LARGEST_INPUT} elements")
    try:
        case.arrays()
        Tensor((1,), "float32", case.dy).array(case.seed, 0)
    except Exception as error:  # noqa: BLE001 - whatever it is, the inputs cannot be made
        raise ValueError(f"case: its inputs cannot be made: {error!r:.200}") from None


def _built(node: ast.expr, types: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Tuple):
        return tuple(_built(entry, types) for entry in node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _built(node.operand, types)
        if isinstance(value, int | float):
            return -value
    if isinstance(node, ast.Name) and node.id in CONSTANTS:
        return CONSTANTS[node.id]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _constructed(node, node.func.id, types)
    raise ValueError(f"case: {ast.unparse(node)!r} is not allowed in the repr of a case")


def _constructed(node: ast.Call, name: str, types: Mapping[str, Any]) -> Any:
    if name not in types:
        raise ValueError(f"case: {name!r} is not an operator that is known here")
    if any(keyword.arg is None for keyword in node.keywords):
        raise ValueError("case: ** is not allowed in the repr of a case")
    values = [_built(entry, types) for entry in node.args]
    named = {str(k.arg): _built(k.value, types) for k in node.keywords}
    try:
        return types[name](*values, **named)
    except TypeError as error:
        raise ValueError(f"case: {error}") from None
