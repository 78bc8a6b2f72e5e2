"""Facts about the source that its rules need; each file is parsed once for all rules."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = [path.relative_to(ROOT) for top in ("headrace", "services") for path in sorted((ROOT / top).rglob("*.py"))]

PRIVATE = re.compile("_[^_]")
UNDERSCORED = {"_exit", "_replace", "_asdict", "_fields"}
"""Public names of the standard library, which underscores them for reasons of its own."""

HELPER_LINES_MAX = 5


@dataclass
class Source:
    """The facts about a file that the rules need."""

    lines: int = 0

    imports: set[str] = field(default_factory=set[str])
    """Full names of all modules, or names in modules, that it imports anywhere in it."""

    names: set[str] = field(default_factory=set[str])
    """Every name with its dots, imported or used: os.environ, grpc.aio.server."""

    private: set[str] = field(default_factory=set[str])
    """Private names that are taken from another object than the method's own."""

    bound: set[str] = field(default_factory=set[str])
    """Variables and parameters."""

    helpers: list[str] = field(default_factory=list[str])
    """Private functions of a few lines that the file mentions at one place, beside their definition."""

    attributes: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Names that a class declares or its methods set, by class."""


@cache  # of what is found; the trees of all files are half a million objects
def read(file: Path) -> Source:
    return examine((ROOT / file).read_text(), str(file))


def examine(text: str, file: str = "") -> Source:
    source = Source(text.count("\n"))
    small = set[str]()
    for node, owner in walk(ast.parse(text)):
        match node:
            case ast.Import():
                source.imports |= {alias.name for alias in node.names}
            case ast.ImportFrom():
                assert node.level == 0, f"{file}: relative imports hide the arrows"
                source.imports |= {f"{node.module}.{alias.name}" for alias in node.names}
            case ast.Attribute():
                source.names.add(spell(node))
                if PRIVATE.match(node.attr) and node.attr not in UNDERSCORED and not is_own(node.value):
                    source.private.add(f"{file}: {node.attr}")
                if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == "self":
                    source.attributes.setdefault(owner, set()).add(node.attr)
            case ast.Name():
                source.names.add(node.id)
                if isinstance(node.ctx, ast.Store):
                    source.bound.add(node.id)
            case ast.arg():
                source.bound.add(node.arg)
            case ast.ClassDef():
                fields = (part.target for part in node.body if isinstance(part, ast.AnnAssign))
                names = {target.id for target in fields if isinstance(target, ast.Name)}
                source.attributes.setdefault(node.name, set()).update(names)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                size = (node.end_lineno or 0) - node.body[0].lineno + 1
                if PRIVATE.match(node.name) and size <= HELPER_LINES_MAX:
                    small.add(node.name)
            case _:
                pass
    source.names |= source.imports
    mentions = Counter(re.findall(r"\w+", text)) if small else Counter[str]()
    source.helpers = [name for name in sorted(small) if mentions[name] == 2]
    return source


def walk(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield all nodes with the class they are in, without the nodes that say whether a name is read or set, which are a
    third of what ast.walk yields."""
    pending = [(tree, "")]
    while pending:
        node, owner = pending.pop()
        yield node, owner
        if isinstance(node, ast.ClassDef):
            owner = node.name
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                pending += [(part, owner) for part in value if isinstance(part, ast.AST)]
            elif isinstance(value, ast.AST) and name != "ctx":
                pending.append((value, owner))


def spell(node: ast.expr) -> str:
    """Return a dotted name; an expression before the dots becomes `()`."""
    match node:
        case ast.Attribute():
            return f"{spell(node.value)}.{node.attr}"
        case ast.Name():
            return node.id
        case _:
            return "()"


def is_own(value: ast.expr) -> bool:
    """Return whether an attribute belongs to the method's own object."""
    match value:
        case ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super"), args=[]):
            return True
        case _:
            return False
