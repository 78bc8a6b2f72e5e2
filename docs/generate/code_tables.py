"""Tables of data in the code: errors, metrics, budgets, placeholders, tools, risk patterns."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docs.generate import sources
from docs.generate.markdown import code, format_table, join_lines, slug

SERVICES = Path(__file__).parents[2] / "services"
METRICS = {"Counter": "_total", "Gauge": "", "Histogram": ""}
"""Suffix that Prometheus adds to metric names, by kind."""


def list_errors() -> str:
    """Return the table of error reasons with code, HTTP status and whether the same request may succeed later."""
    rows: list[list[str]] = []
    for reason, error in sorted(sources.BY_REASON.items()):
        status = f"{error.code.name}, {sources.HTTP_STATUS[error.code]}"
        meaning = join_lines(error.__doc__ or "")
        rows.append([f"[{code(reason)}](#{slug(reason)})", status, "yes" if error.retriable else "no", meaning])
    return format_table("reason|gRPC code, HTTP status|retry|meaning", rows)


def list_budget_defaults() -> str:
    """Return the table of each mode's default limits."""
    rows = (
        [code(mode), str(limits.model_calls), str(limits.tool_calls), f"{limits.timeout_ms:,}"]
        for mode, limits in sources.MODES.items()
    )
    return format_table("mode|maxModelCalls|maxToolCalls|timeoutMs", rows)


def list_placeholders() -> str:
    """Return the names that a prompt may contain in double braces."""
    names = [_format_placeholder(name) for name in sorted(sources.NAMES)]
    aliases = [
        f"{_format_placeholder(alias)} (the same as {_format_placeholder(name)})"
        for alias, name in sources.ALIASES.items()
    ]
    return ", ".join([*names, *aliases]) + "."


def _format_placeholder(name: str) -> str:
    return code(f"{{{{{name}}}}}")


def list_builtin_risks() -> str:
    """Return the table of built-in risk patterns by level, in words."""
    rows = ([code(risk), "; ".join(patterns)] for risk, patterns in sources.BUILT_IN.items())
    return format_table("level|looked for", rows)


def list_builtin_tools() -> str:
    """Return the table of built-in tools, from the tools service and the orchestrator."""
    rows = [[code(tool.name), tool.tier, tool.effect, tool.description] for tool in sources.BUILTIN]
    rows += [[code(tool.name), tool.tier, tool.effect, tool.description] for tool in sources.OWN]
    return format_table("tool|tier|effect|what the model is told", sorted(rows))


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, as defined in the source."""

    service: str
    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


def read_metrics() -> list[Metric]:
    """Return all metrics of the services, read from the source without importing it."""
    found = [metric for path in sorted(SERVICES.rglob("*.py")) for metric in _metrics_in(path)]
    return sorted(found, key=lambda metric: (metric.service, metric.name))


def list_metrics() -> str:
    """Return the table of all metrics with their labels."""
    rows = (
        [code(metric.name), metric.service, metric.kind.lower(), ", ".join(map(code, metric.labels)), metric.help]
        for metric in read_metrics()
    )
    return format_table("metric|service|kind|labels|meaning", rows)


def _metrics_in(path: Path) -> Iterator[Metric]:
    tree = ast.parse(path.read_text())
    constants = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    service = path.relative_to(SERVICES).parts[0]
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Name(kind), [ast.Constant(str(name)), ast.Constant(str(text)), *more]) if kind in METRICS:
                labels = tuple(_labels(more[0], constants)) if more else ()
                yield Metric("all" if service == "runtime" else service, name + METRICS[kind], kind, labels, text)
            case _:
                pass


def _labels(node: ast.expr, constants: dict[str, ast.expr]) -> Iterator[str]:
    """Yield the strings of a tuple, which may include another tuple by name."""
    match node:
        case ast.Name():
            yield from _labels(constants[node.id], constants)
        case ast.Starred():
            yield from _labels(node.value, constants)
        case ast.Tuple():
            for item in node.elts:
                yield from _labels(item, constants)
        case _:
            yield ast.literal_eval(node)
