"""Translates the store's PostgreSQL statements for SQLite; each data-changing part of a WITH becomes a separate step.

Parts without a SQLite equivalent (arrays, rows of an earlier step) become tokens, which `expand` replaces with rows of
values. A statement with an unsupported construct fails in SQLite, and the world with it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeAlias

from services.memory.storage.files.indexing.spend import make_triggers

Rows: TypeAlias = "tuple[Sequence[str], Sequence[Sequence[Any]]]"
"""Column names and rows."""

WRITES = ("INSERT", "UPDATE", "DELETE", "CREATE", "ALTER")

_LEFT_OUT = re.compile(
    r"CREATE EXTENSION|CREATE SEQUENCE|DROP INDEX|CREATE INDEX \w+ ON \w+ USING|ALTER TABLE \w+ ALTER|CREATE TRIGGER"
    r"|UPDATE chats SET title = CASE|INSERT INTO spend_sums\s+SELECT"
)
"""Statements of migrations that change nothing in a new database, or only its speed."""

_REPLACEMENTS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, flags), by)
    for pattern, by, flags in (
        (r"--[^\n]*", "", 0),
        (r"''::bytea", "x''", 0),
        (r"::\w+(\[\])?", "", 0),
        (r"\bbigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "integer PRIMARY KEY AUTOINCREMENT", 0),
        (r' COLLATE "C"', "", 0),
        (r"bytea NOT NULL DEFAULT ''", "bytea NOT NULL DEFAULT x''", 0),
        (r"E'\\n([a-z:]*)'", r"char(10) || '\1'", 0),
        (r"\bSELECT FROM\b", "SELECT 1 FROM", 0),
        (r"\bFOR (?:NO KEY )?UPDATE(?: OF \w+)?(?: SKIP LOCKED)?", "", 0),
        (r"\bgreatest\(", "max(", 0),
        (r"\bchr\(", "char(", 0),
        (r"= ANY\(\$(\d+)\)", r"IN «any \1»", 0),
        (r"(\w+\.\w+) \? (\w+\.\w+)", r"EXISTS (SELECT 1 FROM json_each(\1) WHERE value = \2)", 0),
        (r"unnest\(([^()]*)\) AS (\w+)(?:\(([^()]*)\))?", "«unnest»", 0),
        (r"jsonb_to_recordset\((\$\d+)\) AS (\w+)\(([^()]*)\)", "«recordset»", 0),
        (
            r"^DELETE FROM (\w+)\s+USING (.*?)\bWHERE\b(.*)$",
            r"DELETE FROM \1 WHERE EXISTS (SELECT 1 FROM \2 WHERE \3)",
            re.S,
        ),
    )
)

_RETURNING = re.compile(r"(?<=\bRETURNING )(.*)$", re.S)


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    """Name of the part of a WITH; empty: the statement itself."""
    text: str
    """The statement, with numbered parameters (?1) and tokens."""


@dataclass(frozen=True, slots=True)
class Translated:
    steps: tuple[Step, ...]
    writes: bool
    """Whether the statement changes or locks rows."""


@cache
def translate(text: str) -> Translated:
    """Translate one statement, or several without values."""
    steps: list[Step] = []
    for statement in split_statements(text):
        parts, rest = _split_with(statement)
        names = tuple(name for name, part in parts if "RETURNING" in part or part.startswith("SELECT"))
        # Other parts of a statement do not see the rows that it inserts.
        parts.sort(key=lambda part: part[1].startswith("INSERT"))
        steps += [Step(name, _translate_part(part, names)) for name, part in [*parts, ("", rest)]]
    is_locked = re.search(r"\bFOR (NO KEY )?UPDATE\b", text) is not None
    return Translated(tuple(steps), is_locked or any(step.text.startswith(WRITES) for step in steps))


def split_statements(text: str) -> list[str]:
    """Split at semicolons, and separate each added column from the rest of its statement."""
    bare = re.sub(r"--[^\n]*|\$\$.*?\$\$", "", text, flags=re.S)
    found: list[str] = []
    for statement in filter(None, map(str.strip, bare.split(";"))):
        if _LEFT_OUT.match(statement):
            continue
        if statement.startswith("CREATE FUNCTION add_to_spend_sums"):
            found += make_triggers()
        elif (table := re.match(r"ALTER TABLE \w+\s+", statement)) is not None:
            additions = re.split(r",?\s*ADD COLUMN ", statement[table.end() :])
            found += [f"{table[0]}ADD COLUMN {addition}" for addition in additions if addition]
        else:
            found.append(statement)
    return found


def _split_with(statement: str) -> tuple[list[tuple[str, str]], str]:
    """Return the parts of a WITH by name, and the statement that follows them."""
    parts: list[tuple[str, str]] = []
    head = re.compile(r"\s*(?:WITH|,)\s+(\w+) AS \(")
    while (match := head.match(statement)) is not None and (parts or statement.startswith("WITH")):
        end = _find_end(statement, match.end())
        parts.append((match[1], statement[match.end() : end].strip()))
        statement = statement[end + 1 :]
    return parts, statement.strip()


def _find_end(text: str, start: int) -> int:
    """Return the position of the parenthesis that closes the one at `start`."""
    depth, is_quoted = 1, False
    for at in range(start, len(text)):
        if text[at] == "'":
            is_quoted = not is_quoted
        elif not is_quoted:
            depth += (text[at] == "(") - (text[at] == ")")
        if not depth:
            return at
    raise ValueError(f"a parenthesis stays open: {text[start : start + 80]}")


def _translate_part(text: str, names: Sequence[str]) -> str:
    for pattern, by in _REPLACEMENTS:
        replacement: Any = {"«unnest»": _name_arrays, "«recordset»": _read_records}.get(by, by)
        text = pattern.sub(replacement, text)
    for name in names:
        text = re.sub(rf"\b(FROM|USING|JOIN)(\s+){name}\b", rf"\1\2«rows {name}» AS {name}", text)
    if text.startswith("INSERT") and "SELECT" in text and not re.search(r"\bWHERE\b|\bORDER BY\b", text):
        text = re.sub(r"\bON CONFLICT\b", "WHERE true ON CONFLICT", text)
    if text.startswith(("UPDATE", "INSERT")):
        # In SQLite, RETURNING takes column names without their tables.
        text = _RETURNING.sub(lambda found: re.sub(r"\b(gates|runs)\.", "", found[1]), text)
    return re.sub(r"\$(\d+)", r"?\1", text)


def _name_arrays(found: re.Match[str]) -> str:
    arrays = re.findall(r"\$(\d+)", found[1])
    alias = found[2]
    default = [alias] if len(arrays) == 1 else [f"{alias}_{number}" for number in range(len(arrays))]
    columns = [name.strip() for name in found[3].split(",")] if found[3] else default
    return f"«unnest {' '.join(arrays)} | {' '.join(columns)}» AS {alias}"


def _read_records(found: re.Match[str]) -> str:
    names = [column.split()[0] for column in found[3].split(",")]
    columns = ", ".join("json_extract(value, '$.{}') AS {}".format(name.strip('"'), name) for name in names)
    return f"(SELECT {columns} FROM json_each({found[1]})) AS {found[2]}"


_TOKEN = re.compile(r"«(\w+) ([^»]*)»")


def expand(text: str, values: Sequence[Any], results: Mapping[str, Rows]) -> tuple[str, list[Any]]:
    """Return a step's statement and its values, with separate parameters for arrays and for rows of earlier steps."""
    bound: list[Any] = [None if isinstance(value, list) else value for value in values]

    def put(value: Any) -> str:
        bound.append(value)
        return f"?{len(bound)}"

    def replace(found: re.Match[str]) -> str:
        kind, what = found[1], found[2]
        if kind == "any":
            return f"({', '.join(map(put, values[int(what) - 1]))})"
        if kind == "rows":
            names, rows = results[what]
        else:
            arrays, _, columns = what.partition(" | ")
            names, rows = columns.split(), [*zip(*(values[int(number) - 1] for number in arrays.split()), strict=True)]
        return _render_rows(names, rows, put)

    text = _TOKEN.sub(replace, text)
    return text, bound[: _count_marks(text)]


@lru_cache(1000)
def _count_marks(text: str) -> int:
    """Return the highest parameter number: SQLite accepts exactly this number of values."""
    return max((int(number) for number in re.findall(r"\?(\d+)", text)), default=0)


def _render_rows(names: Sequence[str], rows: Sequence[Sequence[Any]], put: Any) -> str:
    if not rows:
        return f"(SELECT {', '.join(f'NULL AS {name}' for name in names)} WHERE 0)"
    columns = ", ".join(f"column{number} AS {name}" for number, name in enumerate(names, 1))
    return f"(SELECT {columns} FROM (VALUES {', '.join(_render_row(row, put) for row in rows)}))"


def _render_row(row: Sequence[Any], put: Any) -> str:
    return f"({', '.join(map(put, row))})"


def iterate_values(values: Sequence[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """Yield the values of each execution; yield one empty sequence if there are none."""
    yield from values or [()]
