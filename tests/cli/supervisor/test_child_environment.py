"""What processes of a suite find in their environment."""

import importlib
from dataclasses import fields
from pathlib import Path

import pytest

from headrace.cli.supervisor.child_environment import OWNER, select_environment
from services.runtime.process.config import SERVICES, SHARED, list_variables

NAMES = ("facade", "orchestrator", "llm_gateway", "memory", "tools")


def having(name: str, folder: Path) -> set[str]:
    """The processes that get the variable `name`."""
    return {service for service in (*NAMES, "simulator") if select_environment(service, {name: "x"}, folder)}


@pytest.mark.parametrize(
    ("name", "services"),
    [
        ("OPENAI_API_KEY", {"llm_gateway"}),
        ("AWS_SECRET_ACCESS_KEY", {"llm_gateway", "memory"}),
        ("HEADRACE_DATABASE_URL", {"memory"}),
        ("PGPASSWORD", {"memory"}),
        ("HEADRACE_TOKEN", set[str]()),
        ("HEADRACE_TOOLS_SEARCH_KEY", {"tools"}),
        ("HEADRACE_LLM_GATEWAY_REPLICAS", {"llm_gateway"}),
        ("HEADRACE_GATEWAY_LISTEN", set[str]()),
        ("HEADRACE_INTERNAL_TOKEN", set(NAMES)),
        ("HEADRACE_SPELLED_WRONG", set(NAMES)),
        ("PATH", {*NAMES, "simulator"}),
        ("https_proxy", {*NAMES, "simulator"}),
    ],
)
def test_a_variable_is_only_where_it_is_needed(name: str, services: set[str], tmp_path: Path) -> None:
    assert having(name, tmp_path) == services


def test_the_tools_service_gets_what_mcp_json_names(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"a": {"url": "http://a/", "headers": {"A": "env:A_TOKEN"}}}}')
    assert having("A_TOKEN", tmp_path) == {"tools", "llm_gateway"}
    assert having("B_TOKEN", tmp_path) == {"llm_gateway"}


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_of_a_service_reaches_it(name: str, tmp_path: Path) -> None:
    config = importlib.import_module(f"services.{name}.config").Config
    aliases = {alias for item in fields(config) for alias in item.metadata.get("aliases", ())}
    for variable in {*list_variables(config, name.upper()), *aliases}:
        assert name in having(variable, tmp_path), variable


def test_all_services_are_known() -> None:
    for service in SERVICES:
        assert OWNER.match(f"HEADRACE_{service}_X")
    assert not any(OWNER.match(name) for name in SHARED)
