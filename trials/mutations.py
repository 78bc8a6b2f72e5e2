"""Change one line of the source at a time, and see which tests notice.

The mutations are drawn with a fixed seed from all folders of headrace/ and services/. Each is tried in a clone
of the project on the tests that can see its file: the check's first and, if they miss it, the nightly's. The
table of results is written to tests/mutations.md.
"""

import argparse
import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.closest import find_closest
from trials.support.commands import ROOT
from trials.support.steps import name_checkout

CLONE = ROOT / "build" / "mutations"
PAGE = ROOT / "tests/mutations.md"
SEED, COUNT = 44, 20
TEST_S_MAX = 120
"""Time limit of a test; a mutation that makes a test hang counts as noticed."""

NEAREST = 20
"""Number of test files that are tried first; they notice most mutations."""

NO_TESTS = 5
"""pytest's exit code if no test was selected."""


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
GENERATED = ("headrace/v1", "headrace/a2a")


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
    """Draw `count` mutations: first a folder, so that small ones are drawn too, then a file, then a place in it."""
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
    """Yield every mutation of a whole line that the file allows."""
    source = (ROOT / file).read_text()
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.stmt) or not _is_one_line(node):
            continue
        line = lines[node.lineno - 1]
        for part in _own_parts(node):
            if (changed := _mutate(part)) is not None:
                before = ast.get_source_segment(source, part)
                if before and line.count(before) == 1 and "\n" not in before:
                    yield Mutation(file, node.lineno, line, line.replace(before, changed))
        if isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Await)):
            yield Mutation(file, node.lineno, line, line[: node.col_offset] + "pass")


def _is_one_line(node: ast.stmt) -> bool:
    """Return whether the statement, or the head of a block, is one line."""
    whole = node.test if isinstance(node, (ast.If, ast.While)) else node
    return whole.end_lineno == node.lineno


def _own_parts(node: ast.stmt) -> Iterator[ast.expr]:
    roots = [node.test] if isinstance(node, (ast.If, ast.While)) else list(ast.iter_child_nodes(node))
    for root in roots:
        yield from (part for part in ast.walk(root) if isinstance(part, ast.expr))


def _mutate(part: ast.expr) -> str | None:
    """Return the source of a changed expression; None if it is not changed."""
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


def try_mutation(mutation: Mutation) -> tuple[str, str]:
    """Return the check's test that notices the mutation, and else the nightly's; both are empty if none does."""
    tests = [test for test in find_closest([mutation.file]) if (CLONE / test).exists()]
    if caught := find_noticing(mutation, tests, "not nightly"):
        return caught, ""
    return "", find_noticing(mutation, tests, "nightly")


def find_noticing(mutation: Mutation, tests: Sequence[str], marks: str) -> str:
    """Return the first test that fails with the mutation and passes without it; empty if there is none."""
    broken: list[str] = []
    for some in (tests[:NEAREST], tests[NEAREST:]):
        while some:
            mutation.apply(CLONE)
            try:
                failed = run_tests(some, marks, broken)
            finally:
                _git("checkout", "--quiet", "--", ".")
            if not failed:
                break
            if "::" not in failed or not run_tests([failed], marks):
                return failed
            print(f"{failed} fails without a mutation, too", flush=True)
            broken.append(failed)
    return ""


def run_tests(tests: Sequence[str], marks: str, broken: Sequence[str] = ()) -> str:
    """Return the first test that fails, empty if there is none; a collection error is reported by its file."""
    limits = [f"-ofaulthandler_timeout={TEST_S_MAX}", "-ofaulthandler_exit_on_timeout=true"]
    without = [f"--deselect={test}" for test in broken]
    command = [sys.executable, "-m", "pytest", "-q", "-n2", "--maxfail=1", *limits, *without, "-m", marks, *tests]
    done = subprocess.run(command, cwd=CLONE, capture_output=True, text=True)
    if done.returncode in (0, NO_TESTS):
        return ""
    match = re.search(r"^(?:FAILED|ERROR) (\S+(?:\[.*?\](?= - |$))?)", done.stdout, re.MULTILINE)
    return match[1] if match else f"exit code {done.returncode}"


def _git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(CLONE), *arguments], check=True)


def _make_clone() -> None:
    shutil.rmtree(CLONE, ignore_errors=True)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(CLONE)], check=True)
    (CLONE / "build").mkdir()
    for made in ("gateway", "clients", "judges", "image.binpb", "openapi.json"):
        if (ROOT / "build" / made).exists():
            (CLONE / "build" / made).symlink_to(ROOT / "build" / made)
    (CLONE / ".venv").symlink_to(ROOT / ".venv")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m trials mutations")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--skip", type=int, default=0, help="leave out so many, whose rows another run has printed")
    parser.add_argument("--list", action="store_true", help="print the mutations and try none")
    options = parser.parse_args(arguments)
    drawn = draw_mutations(options.seed, options.count)
    if options.list:
        for mutation in drawn:
            print(f"{mutation.file}:{mutation.line}\n  - {mutation.before.strip()}\n  + {mutation.after.strip()}")
        return 0
    _make_clone()
    rows: list[str] = []
    missed = 0
    for mutation in drawn[options.skip :]:
        by_check, by_nightly = try_mutation(mutation)
        missed += not (by_check or by_nightly)
        change = f"`{mutation.before.strip()}` → `{mutation.after.strip()}`".replace("|", "\\|")
        row = f"| {mutation.file}:{mutation.line} | {change} | {by_check or 'no'} | {by_check or by_nightly or 'no'} |"
        print(row, flush=True)
        rows.append(row)
    caught = sum("| no |" not in row for row in rows)
    commit = name_checkout()["commit"]
    title = (
        f"# Mutations of the source, and the tests that notice\n\n`python -m trials mutations`, seed {options.seed}, "
    )
    summary = f"commit {commit}: the check noticed {caught} of {len(rows)}, the nightly {len(rows) - missed}.\n\n"
    header = "| place | change | noticed by the check | by the check or the nightly |\n|---|---|---|---|\n"
    PAGE.write_text(title + summary + header + "\n".join(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
