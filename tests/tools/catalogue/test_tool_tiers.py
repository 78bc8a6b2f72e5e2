"""tools.yaml, valid and invalid, changing while it is active."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from headrace.v1 import tools_pb2
from services.tools.catalogue.tool_tiers import ToolTiers
from services.tools.toolkit.tool import Tool
from tests.support.catalogue import read_catalogue
from tests.support.tools.suite import Serve


def in_force(folder: Path, text: str) -> tuple[dict[str, Tool], list[dict[str, Any]]]:
    """Return the tools by name, and the log lines of refusals."""
    (folder / "tools").mkdir(exist_ok=True)
    (folder / "tools.yaml").write_text(text)
    with structlog.testing.capture_logs() as logged:
        catalogue = read_catalogue(folder / "tools")
    refused = [dict(entry) for entry in logged if entry["log_level"] in ("error", "warning")]
    return {tool.name: tool for tool in catalogue.list_tools()}, refused


def test_tools_yaml_sets_a_tools_tier_category_and_tags(tmp_path: Path) -> None:
    text = """
    optional:
      _BASH_: {enabled: true, always_available: true, category: system, tags: [shell, files], description: Run it.}
      mock_city_weather: {enabled: false}
    """
    tools, refused = in_force(tmp_path, text)
    bash = tools["_bash_"]
    assert refused == []
    assert (bash.tier, bash.always_available, bash.category) == ("enabled", True, "system")
    assert (bash.tags, bash.description) == (("shell", "files"), "Run it.")
    assert tools["mock_city_weather"].tier == "discovered"


def test_core_tools_stay_core_whatever_tools_yaml_states(tmp_path: Path) -> None:
    tools, refused = in_force(tmp_path, "optional: {read_file: {enabled: true, tags: [read]}}")
    assert refused == []
    assert (tools["read_file"].tier, tools["read_file"].tags) == ("core", ("read",))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("optional: [", "not valid YAML"),
        ("[" * 5000, "nested too deeply"),
        ("a: \x00", "not valid YAML"),
        ("optional: {_bash_: {enabled: !!bool maybe}}", "not valid YAML: a value is not of its type"),
        ("- a", "the file"),
        ("optionl: {}", "optionl: "),
        ("optional: {_bash_: {enabled: 1}}", "optional._bash_.enabled: "),
        ("optional: {_bash_: {enable: true}}", "optional._bash_.enable: "),
        ("optional: {_bash_: {tags: read}}", "optional._bash_.tags: "),
        ("optional: {_bash_: {category: ''}}", "optional._bash_.category: "),
        ("optional: {7: {}}", "optional[7]"),
        ("optional: {nobody: {enabled: true}}", "optional.nobody: there is no such tool"),
        ("optional: {read_file: {enabled: false}}", "optional.read_file.enabled: a core tool"),
        ("optional: {_bash_: {always_available: true}}", "optional._bash_.always_available: only an enabled"),
    ],
)
def test_a_mistake_is_named_with_its_field_and_rule(tmp_path: Path, text: str, problem: str) -> None:
    tools, (refusal,) = in_force(tmp_path, text)
    assert refusal["file"] == "tools.yaml"
    assert problem in refusal["problem"]
    assert (tools["_bash_"].tier, tools["_bash_"].always_available) == ("discovered", False)


def test_one_refused_tool_does_not_affect_the_others(tmp_path: Path) -> None:
    tools, _ = in_force(tmp_path, "optional: {nobody: {}, _bash_: {enabled: true}}")
    assert tools["_bash_"].tier == "enabled"


@given(st.text(st.sampled_from("optinal: {}[]&*a!<|>-?'\"#\n\t01.\ud800"), max_size=60))
def test_no_file_content_stops_the_reload(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder, structlog.testing.capture_logs() as logged:
        file = Path(folder, "tools.yaml")
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        ToolTiers(file).reload()
    assert [entry["event"] for entry in logged] in ([], ["tool file refused"])


async def test_a_change_takes_effect_without_a_restart_and_a_mistake_is_ignored(serve: Serve) -> None:
    async with serve() as suite:
        file = suite.definitions.with_name("tools.yaml")

        async def tier_becomes(tier: str) -> None:
            while True:
                reply = await suite.stub.GetTool(tools_pb2.GetToolRequest(tool_name="_bash_"))
                if reply.tool.tier == tier:
                    return
                await asyncio.sleep(0.05)

        file.write_text("optional: {_bash_: {enabled: true, category: system, tags: [shell]}}")
        await tier_becomes("enabled")
        tool = (await suite.stub.GetTool(tools_pb2.GetToolRequest(tool_name="_bash_"))).tool
        assert (tool.category, list(tool.tags), tool.always_available) == ("system", ["shell"], False)
        file.write_text("optional: [")
        suite.catalogue.reload()
        await tier_becomes("enabled")
        file.unlink()
        await tier_becomes("discovered")
