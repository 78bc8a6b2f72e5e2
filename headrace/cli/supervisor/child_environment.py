"""Selects the environment of each process of `headrace up`, so that secrets reach only the services that need them.

Unassigned variables go only to llm_gateway, because its provider file may refer to any. The tools service gets
those referred to in mcp.json at start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from headrace.regular_files import read_regular_file

EVERYONE = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|TZ|TMPDIR|VIRTUAL_ENV|LC_.*|LD_.*|PYTHON.*|MALLOC_.*|GRPC_.*|OTEL_.*"
    r"|SSL_CERT_.*|XDG_.*|COVERAGE_.*|(?i:(https?|all|no)_proxy)"
    # Settings under names known from earlier deployments.
    r"|SERVER_PORT|MEMORY_CHAT_.*|MAX_MESSAGE_HISTORY|AGENT_EXTERNAL_DIR|AGENT_REFRESH_INTERVAL_MS"
    r"|AGENT_LLM_INTERACTION_LOG_.*|AGENT_BASH_.*"
)

ALONE = {
    "memory": re.compile(r"HEADRACE_DATABASE_URL|PG[A-Z]+|AWS_\w+"),
    "llm_gateway": re.compile(r"AWS_\w+"),
    "tools": re.compile(r"PIP_.*|REQUESTS_CA_BUNDLE"),
}
"""Variables that only this service gets."""

COMMAND_LINE = frozenset({"HEADRACE_URL", "HEADRACE_TOKEN"})
"""Settings of the commands themselves, including the user's credential."""

OWNER = re.compile(r"HEADRACE_(FACADE|ORCHESTRATOR|LLM_GATEWAY|MEMORY|TOOLS|SIMULATOR|GATEWAY)_")

FILE_BYTES_MAX = 1024 * 1024

_REFERENCE = re.compile(r'"env:(\w+)"')


def select_environment(service: str, env: Mapping[str, str], config_dir: Path) -> dict[str, str]:
    references: list[str] = []
    if service == "tools":
        with suppress(OSError, UnicodeDecodeError):  # the service itself reports an unreadable file
            references = _REFERENCE.findall(read_regular_file(config_dir / "mcp.json", FILE_BYTES_MAX).decode())
    return {name: value for name, value in env.items() if name in references or _is_for(service, name)}


def _is_for(service: str, name: str) -> bool:
    if EVERYONE.fullmatch(name):
        return True
    if owner := OWNER.match(name):
        return owner[1].lower() == service
    if owners := [alone for alone, names in ALONE.items() if names.fullmatch(name)]:
        return service in owners
    if name.startswith("HEADRACE_"):  # shared, or a typo, which each service reports
        return service != "simulator" and name not in COMMAND_LINE
    return service == "llm_gateway"
