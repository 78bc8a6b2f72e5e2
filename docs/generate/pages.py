"""The pages and their generated regions."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from benchmarks.counts import budgets
from docs.generate import (
    code_tables,
    command_line,
    configuration,
    contract,
    conversations,
    flows,
    licences,
    mode_api,
    sizes,
)

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
    *(ROOT / "docs" / name for name in ("architecture.md", "flows.md", "operating.md", "performance.md")),
]

_REGION = re.compile(r"(<!-- generated: ([\w-]+)((?: [\w.-]+)*) -->\n).*?(<!-- end -->)", re.DOTALL)

REGIONS: dict[str, Callable[..., str]] = {
    "model": configuration.describe_model,
    "budget-defaults": code_tables.list_budget_defaults,
    "placeholders": code_tables.list_placeholders,
    "builtin-risks": code_tables.list_builtin_risks,
    "builtin-tools": code_tables.list_builtin_tools,
    "settings": configuration.list_settings,
    "events": contract.describe_events,
    "other-events": contract.describe_other_events,
    "messages": contract.describe_messages,
    "conversations": conversations.list_conversations,
    "http-messages": contract.describe_http_messages,
    "routes": contract.describe_routes,
    "rpcs": contract.describe_rpcs,
    "scopes": contract.list_scopes,
    "services": contract.list_services,
    "callers": contract.list_callers,
    "errors": code_tables.list_errors,
    "metrics": code_tables.list_metrics,
    "commands": command_line.describe_commands,
    "python-licences": licences.list_python_licences,
    "go-licences": licences.list_go_licences,
    "mode-api": mode_api.describe_mode,
    "flow": flows.describe_flow,
    "sizes": sizes.list_sizes,
    "counts": budgets.describe_budgets,
    "count-parts": budgets.describe_parts,
}
"""The function that fills a region, by region name; the region's other words are its arguments."""


def fill_page(text: str) -> str:
    """Return the page with all regions regenerated."""
    return _REGION.sub(_fill, text)


def _fill(region: re.Match[str]) -> str:
    opening, name, arguments, closing = region.groups()
    return f"{opening}\n{REGIONS[name](*arguments.split()).strip()}\n\n{closing}"
