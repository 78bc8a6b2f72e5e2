"""Everything that a user may write, set, receive or call stands in its page of the reference."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import get_args

import msgspec
import pytest
from pydantic import TypeAdapter

from docs.generate import code_tables, command_line, configuration, contract, sources
from headrace.errors import BY_REASON
from services.facade.proto_routes import load_routes
from services.memory.log import lines
from services.runtime.auth import api_keys
from services.runtime.process.config import SHARED, list_variables
from services.simulator.scripts import steps
from tests.deploy.settings import CONFIGS, list_gateway_settings, prefix
from tests.support.pages import ROOT, read_page, read_section

MODEL_PAGES = {
    "services.orchestrator": ("agents.md", "approvals-yaml.md", "budgets-yaml.md", "tenant-agents-yaml.md"),
    "services.llm_gateway": ("providers.md",),
    "services.tools": ("tools.md", "tools-yaml.md", "mcp-json.md"),
    "services.runtime": ("approvals-yaml.md", "tools.md"),
}


@pytest.mark.parametrize("name", sources.MODELS)
def test_every_field_of_a_configuration_file_stands_in_its_section(name: str) -> None:
    cls = sources.MODELS[name]
    owner = ".".join(cls.__module__.split(".")[:2])
    text = "".join(_find_section(page, name) for page in MODEL_PAGES[owner])
    base = sources.MODELS["plain"] if name in ("react", "plan", "custom") else None
    for key in cls.model_json_schema()["properties"]:
        is_inherited = base is not None and key in base.model_json_schema()["properties"]
        if (cls, key) not in sources.NOT_FOR_FILES and not is_inherited:
            assert f"| `{key}` |" in text, f"{name}.{key}"


def _find_section(page: str, anchor: str) -> str:
    try:
        return read_section(read_page(page), anchor)
    except KeyError:
        return read_page(page)


def test_no_model_of_a_file_is_left_out() -> None:
    """Every model that a model of the table refers to is in the table, too."""
    known = {cls.__name__ for cls in sources.MODELS.values()}
    referred = {name for cls in sources.MODELS.values() for name in cls.model_json_schema().get("$defs", {})}
    assert referred <= known


@pytest.mark.parametrize("service", CONFIGS)
def test_every_setting_of_a_service_stands_in_settings(service: str) -> None:
    page = read_page("settings.md")
    defaults = list_variables(CONFIGS[service], prefix(service))
    assert [name for name in defaults if f"| `{name}` |" not in page] == []
    listed = {setting.name: setting for setting in configuration.read_settings(service.replace("-", "_"))}
    assert listed.keys() == defaults.keys()
    for field in fields(CONFIGS[service]):
        for alias in field.metadata.get("aliases", ()):
            assert f"`{alias}`" in page


def test_every_other_setting_stands_in_settings() -> None:
    page = read_page("settings.md")
    assert [name for name in SHARED if f"`{name}`" not in page] == []
    for name, default in list_gateway_settings().items():
        shown = f"`{default}`" if default else ""
        own = f"| `{name}` |" in page and f"| {shown} |" in page.split(f"| `{name}` |")[1].partition("\n")[0]
        assert own or f"`{name}`" in page.split("## Production gateway")[1], name


def test_every_field_of_the_api_keys_file_stands_in_settings() -> None:
    section = read_section(read_page("settings.md"), "api-keys-file")
    names = [field.encode_name for field in msgspec.structs.fields(api_keys._Entry)]  # pyright: ignore[reportPrivateUsage] - the file's model
    assert [name for name in names if f"| `{name}` |" not in section] == []


def test_every_word_of_a_simulators_script_stands_in_the_examples() -> None:
    page = (ROOT / "examples" / "README.md").read_text()
    schema = TypeAdapter(steps.Rule).json_schema()
    words = {word for part in (schema, *schema["$defs"].values()) for word in part.get("properties", {})}
    assert len(words) > 15
    assert [word for word in words if f"`{word}`" not in page and f'"{word}"' not in page] == []


def test_every_event_and_its_fields_stand_in_events() -> None:
    page = read_page("events.md")
    for name, field in contract.EVENTS.items():
        section = read_section(page, name.replace(".", ""))
        assert field.message_type is not None
        for inner in field.message_type.fields:
            assert f"| `{inner.json_name}` |" in section, f"{name}: {inner.json_name}"


def test_every_code_of_a_notice_stands_in_events() -> None:
    section = read_section(read_page("events.md"), "notices")
    source = "".join(path.read_text() for path in (ROOT / "services" / "orchestrator").rglob("*.py"))
    codes = re.findall(r"(?:notice\(\s*|notices = \[\(|^AGENT_CHANGED = \()\"([A-Z_]+)\"", source, re.MULTILINE)
    assert set(codes) == set(re.findall(r"^\| `([A-Z_]+)` \|", section, re.MULTILINE))


def test_every_message_that_a_page_refers_to_is_described() -> None:
    for page in ("events.md", "http.md"):
        text = read_page(page)
        for name in contract.EVENTS_PAGE if page == "events.md" else ("Agent", "Run", "BudgetLeft", "ClientTool"):
            assert f"### {name}\n" in text, f"{page}: {name}"


def test_every_route_and_its_parameters_stand_in_http() -> None:
    page = read_page("http.md")
    for route in load_routes():
        section = page.split(f"### `{route.verb} {route.path}`\n")[1].split("\n### ")[0]
        hidden = {"offset", "length"} if route.is_file else set[str]()
        names = () if route.is_upload else (field.json_name for field in route.rpc.input_type.fields)
        assert [name for name in names if name not in hidden and f"| `{name}` |" not in section] == []


def test_every_rpc_stands_in_rpcs() -> None:
    page = read_page("rpcs.md")
    for file in sources.CONTRACT:
        for service in file.services_by_name.values():
            section = page.split(f"\n## {service.name}\n")[1].split("\n## ")[0]
            for rpc in service.methods:
                assert f"### {service.name}.{rpc.name}\n" in section, rpc.full_name


def test_every_reason_has_its_row_and_its_section() -> None:
    page = read_page("errors.md")
    for reason in BY_REASON:
        assert f"| [`{reason}`](#{reason.lower()}) |" in page
        assert len(read_section(page, reason.lower()).strip()) > 20, f"{reason}: what to do"


def test_every_metric_stands_in_metrics() -> None:
    page = read_page("metrics.md")
    found = code_tables.read_metrics()
    assert len(found) > 20
    assert [metric.name for metric in found if f"| `{metric.name}` |" not in page] == []


def test_every_command_and_its_options_stand_in_cli() -> None:
    page = read_page("cli.md")
    for path, command in command_line.walk_commands():
        section = page.split(f"### `{path}`\n")[1].split("\n### ")[0]
        for option in command.params:
            assert all(f"`{name}`" in page for name in option.secondary_opts), f"{path} {option.secondary_opts}"
            name = option.human_readable_name if not option.opts[0].startswith("-") else option.opts[0]
            assert f"`{name}`" in section or f" {name}" in section or f"[{name}" in section, f"{path} {name}"


def test_every_field_of_a_log_line_stands_in_the_chat_log_page() -> None:
    page = read_page("chat-log.md")
    stamped = {field.encode_name for field in msgspec.structs.fields(lines.Stamped)}
    for name in stamped:
        assert f"| `{name}` |" in page
    for kind in get_args(lines.Known):
        tag = str(kind.__struct_config__.tag)
        section = read_section(page, tag)
        for field in msgspec.structs.fields(kind):
            assert field.encode_name in stamped or f"| `{field.encode_name}` |" in section, f"{tag}.{field.encode_name}"
    message = read_section(page, "messages")
    for field in msgspec.structs.fields(lines.StoredMessage):
        assert f"| `{field.encode_name}` |" in message, field.encode_name
