"""Every `re` pattern takes linear time on any text, because matching blocks the interpreter that serves all callers.

The texts are repetitions of a pattern's own parts. Matching that needs look-behind or backtracking uses RE2
(`import re2`) or is written by hand.
"""

import ast
import importlib
import re
import time
from collections.abc import Iterator
from itertools import permutations, product
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

METHODS = {"search", "match", "fullmatch", "sub", "subn", "findall", "finditer", "split"}

DYNAMIC = {
    "services/tools/documents/slides.py": "our own theme, our own names",
    "headrace/cli/evaluation/checks.py": "the pattern of whoever runs the program, in its own process",
    "headrace/cli/evaluation/suite.py": "the same",
    "headrace/testing.py": "our own word",
    "headrace/cli/rpc_commands.py": "our own comments, when a command is defined",
    "services/tools/sandbox/leftovers.py": "our own names in /proc",
    "services/llm_gateway/provider_errors/error_patterns.py": "collected from its table",
}
"""Files that build patterns, and why they may."""

CHARS = 1500
SECONDS_MIN = 0.0005
"""CPU time of a pattern on CHARS from which its growth is measured."""

GROWTH_MAX = 8
"""Maximum growth of a pattern's time on a text four times as long: 4 if it is linear, 16 if it is quadratic."""

Parsed = tuple[str, ast.Module]


def parse_sources() -> list[Parsed]:
    files = [path for top in ("headrace", "services") for path in sorted((ROOT / top).rglob("*.py"))]
    names = [str(path.relative_to(ROOT)) for path in files]
    ours = [name for name in names if not name.startswith(("headrace/v1/", "headrace/a2a/", "services/simulator/"))]
    return [(name, ast.parse((ROOT / name).read_text())) for name in ours]


SOURCES = parse_sources()


def find_calls(name: str) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls of a method of `re`, or of a pattern, with the name of what it is called on."""
    for node in ast.walk(dict(SOURCES)[name]):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield ast.unparse(node.func.value).rpartition(".")[2], node


def collect_patterns() -> Iterator[tuple[str, re.Pattern[Any], set[str]]]:
    """Yield the patterns of all modules with where they are and how they are used."""
    calls = [(name, on, call) for name, _ in SOURCES for on, call in find_calls(name)]
    usage: dict[str, set[str]] = {}
    for name, on, call in calls:
        method = getattr(call.func, "attr", "")
        if on == "re" and method in METHODS and isinstance(call.args[0], ast.Constant):
            flags = sum(getattr(re, flag) for flag in ("DOTALL", "MULTILINE") if flag in ast.unparse(call))
            yield f"{name}:{call.lineno}", re.compile(ast.literal_eval(call.args[0]), flags), {method}
        usage.setdefault(on, set()).update({method} & METHODS)
    for name, tree in SOURCES:
        if "re.compile" in ast.unparse(tree):
            module = importlib.import_module(name.removesuffix(".py").replace("/", "."))
            for variable, value in vars(module).items():
                values = (
                    value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
                )
                for pattern in find_patterns(values):
                    yield f"{name}:{variable}", pattern, usage.get(variable) or METHODS


def find_patterns(values: Any) -> Iterator[re.Pattern[Any]]:
    for value in values:
        for part in [value, *(getattr(value, name, None) for name in getattr(value, "__dataclass_fields__", ()))]:
            if isinstance(part, re.Pattern):
                yield part


def make_texts(pattern: str) -> Iterator[tuple[str, str, str]]:
    """Yield beginnings, units to repeat and ends of texts."""
    plain = re.sub(r"\\[sSwWdDbBAZ]|\{\d+(,\d*)?\}|\(\?[:=!<>iP]*", "\0", pattern)
    words = [word for word in re.split(r"[\0\[\]()*+?|.^$]+", plain.replace("\\", "")) if word][:12]
    letters = dict.fromkeys([*plain.replace("\\", "").replace("\0", ""), *" \n\ta1A_-!<{`“"])
    units = [*list(letters)[:16], *(word for word in words if len(word) > 1)]
    yield from product(("", *words), [*units, *map("".join, permutations(units[:5], 2))], ("", "\0"))


def measure_s(pattern: re.Pattern[Any], method: str, text: str | bytes) -> float:
    call = getattr(pattern, method)
    began_s = time.process_time()
    found = call(text[:0], text) if method in ("sub", "subn") else call(text)
    if method == "finditer":
        list(found)
    return time.process_time() - began_s


def find_slow_text(pattern: re.Pattern[Any], methods: set[str]) -> str | None:
    is_bytes = isinstance(pattern.pattern, bytes)
    for head, unit, tail in make_texts(pattern.pattern.decode("latin-1") if is_bytes else pattern.pattern):
        short, long = (head + unit * (chars // len(unit)) + tail for chars in (CHARS, 4 * CHARS))
        for method in methods:
            if measure_s(pattern, method, short.encode() if is_bytes else short) < SECONDS_MIN:
                continue
            # The least of three is the pattern's own time, whatever else the machine does.
            short_s, long_s = (
                min(measure_s(pattern, method, text.encode() if is_bytes else text) for _ in range(3))
                for text in (short, long)
            )
            if short_s > SECONDS_MIN and long_s > GROWTH_MAX * short_s:
                return f"{method}: {short[:20]!r}…"
    return None


def test_every_pattern_takes_linear_time() -> None:
    patterns = list(collect_patterns())
    assert len(patterns) > 100
    found = {place: find_slow_text(pattern, methods) for place, pattern, methods in patterns}
    assert {place: text for place, text in found.items() if text} == {}


def test_patterns_are_module_constants_so_that_they_are_tested() -> None:
    hidden: list[str] = []
    for name, tree in SOURCES:
        constants = {
            id(node)
            for statement in tree.body
            if isinstance(statement, ast.Assign | ast.AnnAssign)
            for node in ast.walk(statement)
        }
        for on, call in find_calls(name):
            is_compiled = on == "re" and getattr(call.func, "attr", "") == "compile" and id(call) not in constants
            is_built = (
                on == "re" and getattr(call.func, "attr", "") in METHODS and not isinstance(call.args[0], ast.Constant)
            )
            if (is_compiled or is_built) and name not in DYNAMIC:
                hidden.append(f"{name}:{call.lineno}")
    assert hidden == []


@pytest.mark.parametrize(
    "pattern", [r"<(?=\s*/?\s*speaker\b)", r"```[\w-]*\s*\n(.*?)\n?```", r"^[\s#]*([1-9])[\s*]*[.):]"]
)
def test_a_slow_pattern_is_detected(pattern: str) -> None:
    assert find_slow_text(re.compile(pattern, re.DOTALL | re.MULTILINE), METHODS)
