"""Everything a user may write, set, receive or call is documented in its reference page."""

import re
from dataclasses import fields
from typing import get_args

import msgspec
import pytest
from pydantic import TypeAdapter

from docs.generate import command_line, configuration, contract, sources
from docs.generate.pages import PAGES
from headrace.errors import BY_REASON
from services.facade.proto_routes import load_routes
from services.memory.log import lines, messages
from services.runtime.auth import api_keys
from services.runtime.process.config import SHARED, list_variables
from services.simulator import script
from tests.deploy.settings import CONFIGS, list_gateway_settings, prefix
from tests.support.pages import ROOT, read_page, read_section

REGION = re.compile(r"<!-- generated: ([\w-]+)((?: [\w.-]+)*) -->")
"""The name of a generated region, and what it is about."""


@pytest.mark.parametrize(
    ("region", "subjects"),
    [
        ("model", {*sources.MODELS}),
        ("settings", {*sources.CONFIGS, "shared", "credentials"}),
        ("messages", {*contract.EVENTS_PAGE}),
        ("routes", {route.peer for route in load_routes()}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_subject_of_a_generated_region_has_one(region: str, subjects: set[str]) -> None:
    found = [words for page in PAGES for name, words in REGION.findall(page.read_text()) if name == region]
    assert subjects <= {subject for words in found for subject in words.split()}


def test_every_event_and_every_command_has_a_section() -> None:
    events, commands = read_page("events.md"), read_page("cli.md")
    assert [name for name in contract.EVENTS if f"### `{name}`" not in events] == []
    assert [path for path, _ in command_line.walk_commands() if f"### `{path}`" not in commands] == []


def test_no_model_of_a_file_is_missing() -> None:
    """Every model referred to by a model of the table is itself in the table."""
    known = {cls.__name__ for cls in sources.MODELS.values()}
    referred = {name for cls in sources.MODELS.values() for name in cls.model_json_schema().get("$defs", {})}
    assert referred <= known


@pytest.mark.parametrize("service", CONFIGS)
def test_every_setting_of_a_service_is_in_settings(service: str) -> None:
    page = read_page("settings.md")
    defaults = list_variables(CONFIGS[service], prefix(service))
    listed = {setting.name: setting for setting in configuration.read_settings(service.replace("-", "_"))}
    assert listed.keys() == defaults.keys()
    for field in fields(CONFIGS[service]):
        for alias in field.metadata.get("aliases", ()):
            assert f"`{alias}`" in page


def test_every_other_setting_is_in_settings() -> None:
    page = read_page("settings.md")
    assert [name for name in SHARED if f"`{name}`" not in page] == []
    for name, default in list_gateway_settings().items():
        shown = f"`{default}`" if default else ""
        own = f"| `{name}` |" in page and f"| {shown} |" in page.split(f"| `{name}` |")[1].partition("\n")[0]
        assert own or f"`{name}`" in page.split("## Production gateway")[1], name


def test_every_field_of_the_api_keys_file_is_in_settings() -> None:
    section = read_section(read_page("settings.md"), "api-keys-file")
    names = [field.encode_name for field in msgspec.structs.fields(api_keys._Entry)]  # pyright: ignore[reportPrivateUsage] - the file's model
    assert [name for name in names if f"| `{name}` |" not in section] == []


def test_every_key_of_a_simulators_script_is_in_the_examples() -> None:
    page = (ROOT / "examples" / "README.md").read_text()
    schema = TypeAdapter(script.Rule).json_schema()
    words = {word for part in (schema, *schema["$defs"].values()) for word in part.get("properties", {})}
    assert len(words) > 15
    assert [word for word in words if f"`{word}`" not in page and f'"{word}"' not in page] == []


def test_every_code_of_a_notice_is_in_events() -> None:
    section = read_section(read_page("events.md"), "notices")
    source = "".join(path.read_text() for path in (ROOT / "services" / "orchestrator").rglob("*.py"))
    codes = re.findall(r"(?:notice\(\s*|notices = \[\(|^AGENT_CHANGED = \()\"([A-Z_]+)\"", source, re.MULTILINE)
    assert set(codes) == set(re.findall(r"^\| `([A-Z_]+)` \|", section, re.MULTILINE))


def test_every_error_reason_has_a_row_and_a_section() -> None:
    page = read_page("errors.md")
    for reason in BY_REASON:
        assert f"| [`{reason}`](#{reason.lower()}) |" in page
        assert len(read_section(page, reason.lower()).strip()) > 20, f"{reason}: what to do"


def test_every_field_of_a_log_line_is_in_the_chat_log_page() -> None:
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
    for field in msgspec.structs.fields(messages.StoredMessage):
        assert f"| `{field.encode_name}` |" in message, field.encode_name
