"""Change one line of the source at a time, and see which tests notice.

`python -m trials mutations` draws the mutations by a fixed seed over all folders of headrace/ and services/, tries each
in a clone of the project on the tests that can see the file (the check's first, then the nightly's), and prints a row
of docs/mutations.md for each.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[1]
SEED, COUNT = 44, 20

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
GENERATED = ("headrace/v1", "headrace/a2a", "headrace/sync")


@dataclass(frozen=True, slots=True)
class Mutation:
    file: str
    line: int
    before: str
    after: str

    def apply(self, root: Path) -> None:
        path = root / self.file
        lines = path.read_text().splitlines(keepends=True)
        lines[self.line - 1] = lines[self.line - 1].replace(self.before, self.after)
        path.write_text("".join(lines))


def draw_mutations(seed: int, count: int) -> list[Mutation]:
    """Draw `count` mutations: a folder first, so that small ones have their turn, then a file, then a place in it."""
    random = Random(seed)
    folders: dict[str, list[str]] = {}
    for top in ("headrace", "services"):
        for path in sorted((ROOT / top).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if not name.startswith(GENERATED):
                folders.setdefault("/".join(name.split("/")[:3]).removesuffix(".py"), []).append(name)
    drawn: list[Mutation] = []
    while len(drawn) < count:
        file = random.choice(folders[random.choice(sorted(folders))])
        if (found := list(find_mutations(file))) and not any(other.file == file for other in drawn):
            drawn.append(random.choice(found))
    return drawn


def find_mutations(file: str) -> Iterator[Mutation]:
    """Yield every mutation of one whole line that the file allows."""
    source = (ROOT / file).read_text()
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.stmt) or node.lineno != node.end_lineno:
            header = isinstance(node, (ast.If, ast.While)) and node.test.lineno == node.test.end_lineno == node.lineno
            if not header:
                continue
        line = lines[node.lineno - 1]
        for part in _own_parts(node):
            if (changed := _mutate(part)) is not None:
                before = ast.get_source_segment(source, part)
                if before and line.count(before) == 1 and "\n" not in before:
                    yield Mutation(file, node.lineno, line, line.replace(before, changed))
        if isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Await)):
            yield Mutation(file, node.lineno, line, line[: node.col_offset] + "pass")


def _own_parts(node: ast.stmt) -> Iterator[ast.expr]:
    roots = [node.test] if isinstance(node, (ast.If, ast.While)) else list(ast.iter_child_nodes(node))
    for root in roots:
        yield from (part for part in ast.walk(root) if isinstance(part, ast.expr))


def _mutate(part: ast.expr) -> str | None:
    """Return the source of a changed expression; None: this one is left as it is."""
    match part:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARISONS:
            return f"{ast.unparse(left)} {COMPARISONS[type(op)]} {ast.unparse(right)}"
        case ast.BoolOp(op=op, values=values):
            joint = " or " if isinstance(op, ast.And) else " and "
            return f"({joint.join(f'({ast.unparse(value)})' for value in values)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"bool({ast.unparse(operand)})"
        case ast.Constant(value=bool() as value):
            return str(not value)
        case ast.Constant(value=0 | 1 as value):
            return str(value + 1)
        case ast.BinOp(left=left, op=ast.Add(), right=right) if not _has_text(part):
            return f"({ast.unparse(left)} - {ast.unparse(right)})"
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return f"({ast.unparse(orelse)} if {ast.unparse(test)} else {ast.unparse(body)})"
        case _:
            return None


def _has_text(part: ast.expr) -> bool:
    return any(isinstance(node, (ast.JoinedStr, ast.List, ast.Tuple)) for node in ast.walk(part)) or any(
        isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)) for node in ast.walk(part)
    )


if __name__ == "__main__":
    for m in draw_mutations(int(sys.argv[1]), 40):
        print(m.file, m.line, "\n   -", m.before.strip(), "\n   +", m.after.strip())
