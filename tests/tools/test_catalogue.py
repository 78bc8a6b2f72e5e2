"""Definition files in a real folder, good and bad, changing while they are in force."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import structlog

from services.runtime.watching import watch
from services.tools.catalogue import Catalogue

OWN = {"name": "hello", "description": "Say hello.", "command": ["echo", "hello"], "parameters": {"type": "object"}}


def write(folder: Path, name: str, *tools: Any) -> None:
    (folder / name).write_text(json.dumps({"tools": tools}), encoding="utf-8")


def refusals(logged: Any) -> list[dict[str, Any]]:
    return [entry for entry in logged if entry["log_level"] == "error"]


def test_without_files_the_built_in_tools_are_in_force(tmp_path: Path) -> None:
    names = [tool.name for tool in Catalogue(tmp_path / "missing").tools()]
    assert names == ["_bash_", "city_datetime", "list_files", "mock_city_weather", "read_file", "write_file"]


def test_the_discovered_tier_is_bash_alone(tmp_path: Path) -> None:
    assert [tool.name for tool in Catalogue(tmp_path).tools() if tool.tier == "discovered"] == ["_bash_"]


@pytest.mark.parametrize("hint", ["afterCallHint", "after_call_hint"])
def test_a_definition_describes_a_built_in_tool_anew(tmp_path: Path, hint: str) -> None:
    write(tmp_path, "a.backend", {"type": "function", "name": "City_DateTime", "description": "New.", hint: "Then…"})
    found = Catalogue(tmp_path).find("CITY_datetime")
    assert found is not None
    assert (found.tool.name, found.tool.description, found.tool.after_call_hint) == ("city_datetime", "New.", "Then…")


def test_a_command_makes_a_tool_of_ones_own(tmp_path: Path) -> None:
    write(tmp_path, "a.backend", OWN | {"effect": "read"})
    found = Catalogue(tmp_path).find("HELLO")
    assert found is not None
    assert (found.tool.tier, found.tool.effect, found.tool.is_command) == ("enabled", "read", True)


def test_an_own_tool_has_its_effect_once_unless_it_says_otherwise(tmp_path: Path) -> None:
    write(tmp_path, "a.backend", OWN)
    found = Catalogue(tmp_path).find("hello")
    assert found is not None
    assert found.tool.effect == "once"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('"\\ud800"', "the file"),
        ('{"tool": []}', "tools: Field required"),
        ('{"tools": [{"name": "a b"}]}', "tools[0].name"),
        ('{"tools": [{"name": "a", "efect": "read"}]}', "tools[0].efect"),
        ('{"tools": [{"name": "a", "effect": "rad"}]}', "tools[0].effect"),
        ('{"tools": [{"name": "a", "command": []}]}', "tools[0].command"),
        ('{"tools": [{"name": "a", "parameters": {"type": "x"}}]}', "tools[0].parameters"),
        ('{"tools": [{"name": "a", "parameters": {"type": "string"}}]}', "tools[0].parameters"),
    ],
)
def test_a_bad_file_is_named_with_field_and_reason_and_the_others_go_on(
    tmp_path: Path, text: str, problem: str
) -> None:
    (tmp_path / "bad.backend").write_text(text)
    write(tmp_path, "good.backend", OWN)
    with structlog.testing.capture_logs() as logged:
        catalogue = Catalogue(tmp_path)
    (refusal,) = refusals(logged)
    assert refusal["file"] == "bad.backend"
    assert problem in refusal["problem"]
    assert catalogue.find("hello") is not None


@pytest.mark.parametrize(
    ("tool", "problem"),
    [
        ({"name": "nobody", "description": "…"}, "no built-in tool has this name"),
        ({"name": "_BASH_", "command": ["echo"]}, "is built in"),
    ],
)
def test_a_tool_that_is_neither_described_nor_made_is_refused(tmp_path: Path, tool: Any, problem: str) -> None:
    write(tmp_path, "a.backend", tool, OWN)
    with structlog.testing.capture_logs() as logged:
        catalogue = Catalogue(tmp_path)
    (refusal,) = refusals(logged)
    assert refusal["tool"] == tool["name"]
    assert problem in refusal["problem"]
    assert catalogue.find("hello") is not None


def test_a_name_defined_twice_is_refused_both_times(tmp_path: Path) -> None:
    write(tmp_path, "a.backend", OWN)
    write(tmp_path, "b.backend", OWN | {"name": "Hello"}, {"name": "read_file", "description": "1"})
    write(tmp_path, "c.backend", {"name": "READ_FILE", "description": "2"})
    with structlog.testing.capture_logs() as logged:
        catalogue = Catalogue(tmp_path)
    assert [entry["file"] for entry in refusals(logged)] == ["a.backend", "b.backend", "b.backend", "c.backend"]
    assert catalogue.find("hello") is None
    builtin = catalogue.find("read_file")
    assert builtin is not None
    assert builtin.tool.description not in ("1", "2")


def test_the_last_good_version_stays_in_force_until_the_file_goes(tmp_path: Path) -> None:
    write(tmp_path, "a.backend", OWN)
    catalogue = Catalogue(tmp_path)
    (tmp_path / "a.backend").write_text("{")
    with structlog.testing.capture_logs() as logged:
        catalogue.reload()
    assert refusals(logged)[0]["last_good_kept"] is True
    assert catalogue.find("hello") is not None
    (tmp_path / "a.backend").unlink()
    catalogue.reload()
    assert catalogue.find("hello") is None


async def test_a_change_takes_effect_without_a_restart(tmp_path: Path) -> None:
    catalogue = Catalogue(tmp_path)
    async with asyncio.timeout(20):
        watching = asyncio.create_task(watch(tmp_path, catalogue.reload, interval_ms=50))
        while catalogue.find("hello") is None:
            write(tmp_path, "a.backend", OWN)
            await asyncio.sleep(0.2)
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching
