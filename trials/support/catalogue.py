"""Finds the trials without importing them, since some import packages that are not installed yet."""

import ast
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Trial:
    name: str
    """Name on the command line: `other-python` for other_python.py."""

    module: str
    line: str
    nightly: list[str] | None
    """Arguments in `make nightly`; None: the trial is not part of it."""


def find_trials() -> dict[str, Trial]:
    """Return all trials by name, in alphabetical order."""
    files = sorted({*FOLDER.glob("*.py"), *FOLDER.glob("*/__main__.py")} - {FOLDER / "__main__.py"})
    trials = [trial for file in files if (trial := read_trial(file))]
    return {trial.name: trial for trial in sorted(trials, key=lambda trial: trial.name)}


def read_trial(file: Path) -> Trial | None:
    tree = ast.parse(file.read_text())
    mains = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main" and node.args.args]
    if not mains:
        return None
    module = ".".join(("trials", *file.relative_to(FOLDER).with_suffix("").parts))
    name = (file.parent if file.name == "__main__.py" else file.with_suffix("")).name.replace("_", "-")
    line = (ast.get_docstring(tree) or "").partition("\n")[0]
    return Trial(name, module, line, read_nightly(tree))


def read_nightly(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name("NIGHTLY")], value=value):
                return ast.literal_eval(value)
            case ast.AnnAssign(target=ast.Name("NIGHTLY"), value=ast.expr() as value):
                return ast.literal_eval(value)
            case _:
                pass
    return None
