"""Selects the environment of each process of `headrace up`, so that secrets reach only the services that need them.

Unassigned variables go only to llm_gateway, because its provider file may refer to any. The tools service gets
those that mcp.json and tools/*.backend refer to at start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

from headrace.regular_files import read_regular_text

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

PROVIDER_FILE, ENV_FILE = "providers.json", ".env"

_REFERENCE = re.compile(r"\benv:(\w+)")


def read_env_file(config_dir: Path) -> dict[str, str]:
    """Return the variables of the folder's `.env`, without empty ones.

    Raises:
        OSError: It is not a small regular file.
        UnicodeDecodeError: It is not UTF-8.
    """
    # Imported here, so that commands that read none stay quick.
    from dotenv import dotenv_values

    try:
        text = read_regular_text(config_dir / ENV_FILE, FILE_BYTES_MAX)
    except FileNotFoundError:
        return {}
    # Keys may contain `$`, so nothing is interpolated.
    return {name: value for name, value in dotenv_values(stream=StringIO(text), interpolate=False).items() if value}


def select_environment(service: str, env: Mapping[str, str], config_dir: Path) -> dict[str, str]:
    references: list[str] = []
    if service == "tools":
        for path in (config_dir / "mcp.json", *sorted((config_dir / "tools").glob("[!.]*.backend"))):
            references += find_references(path)
    return {name: value for name, value in env.items() if name in references or _is_for(service, name)}


def find_references(path: Path) -> list[str]:
    """Return the variables that a file refers to as `env:NAME`; an unreadable file, which its service reports, has
    none."""
    try:
        return _REFERENCE.findall(read_regular_text(path, FILE_BYTES_MAX))
    except (OSError, UnicodeDecodeError):
        return []


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
