"""Valid and invalid definition files in a real folder, changing while they are active."""

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any, Literal

import pytest
import structlog

from services.runtime.files.file_watch import watching_paths
from services.tools.builtin import BUILTIN
from services.tools.toolkit.tool import FrontEnd
from tests.support.catalogue import read_catalogue
from tests.support.tools.suite import Serve

OWN = {"name": "hello", "description": "Say hello.", "command": ["echo", "hello"], "parameters": {"type": "object"}}


def write(folder: Path, name: str, *tools: Any) -> None:
    (folder / name).write_text(json.dumps({"tools": tools}), encoding="utf-8")


def refusals(logged: Any) -> list[dict[str, Any]]:
    return [entry for entry in logged if entry["log_level"] == "error"]


def test_without_files_only_the_built_in_tools_are_active(tmp_path: Path) -> None:
    names = [tool.name for tool in read_catalogue(tmp_path / "missing").list_tools()]
    assert names == sorted(tool.name for tool in BUILTIN)


def test_only_bash_is_in_the_discovered_tier(tmp_path: Path) -> None:
    assert [tool.name for tool in read_catalogue(tmp_path).list_tools() if tool.tier == "discovered"] == ["_bash_"]


@pytest.mark.parametrize("hint", ["afterCallHint", "after_call_hint"])
def test_a_definition_replaces_a_built_in_tools_description(tmp_path: Path, hint: str) -> None:
    write(tmp_path, "a.backend", {"type": "function", "name": "City_DateTime", "description": "New.", hint: "Then…"})
    found = read_catalogue(tmp_path).find("CITY_datetime")
    assert found is not None
    assert (found.tool.name, found.tool.description, found.tool.after_call_hint) == ("city_datetime", "New.", "Then…")


def test_a_definition_with_a_command_adds_a_custom_tool(tmp_path: Path) -> None:
    write(tmp_path, "a.backend", OWN | {"effect": "read"})
    found = read_catalogue(tmp_path).find("HELLO")
    assert found is not None
    assert (found.tool.tier, found.tool.effect, found.tool.needs) == ("enabled", "read", {"sandbox"})


def test_a_custom_tools_effect_defaults_to_once(tmp_path: Path) -> None:
    write(tmp_path, "a.backend", OWN)
    found = read_catalogue(tmp_path).find("hello")
    assert found is not None
    assert found.tool.effect == "once"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "depth limit exceeded"),
        ("[" * 900 + "]" * 900, "nested deeper than 64 levels"),
        ('{"tools": [{"name": "a", "description": "\\ud800"}]}', "not valid JSON"),
        ('{"tools": [{"name": "a", "parameters": {"type": "object", "minProperties": NaN}}]}', "not valid JSON"),
        ('"\\ud800"', "not valid JSON"),
        ('{"tool": []}', "tools: Field required"),
        ('{"tools": [{"name": "a b"}]}', "tools[0].name"),
        ('{"tools": [{"name": "a", "efect": "read"}]}', "tools[0].efect"),
        ('{"tools": [{"name": "a", "effect": "rad"}]}', "tools[0].effect"),
        ('{"tools": [{"name": "a", "command": []}]}', "tools[0].command"),
        ('{"tools": [{"name": "a", "parameters": {"type": "x"}}]}', "tools[0].parameters"),
        ('{"tools": [{"name": "a", "parameters": {"type": "string"}}]}', "tools[0].parameters"),
    ],
)
def test_a_bad_file_is_named_with_its_problem_and_others_stay_active(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "bad.backend").write_text(text)
    write(tmp_path, "good.backend", OWN)
    with structlog.testing.capture_logs() as logged:
        catalogue = read_catalogue(tmp_path)
    (refusal,) = refusals(logged)
    assert refusal["file"] == "bad.backend"
    assert problem in refusal["problem"]
    assert catalogue.find("hello") is not None


@pytest.mark.parametrize(
    ("name", "fields", "problem"),
    [
        ("a.action", {"command": ["ls"]}, "tools[0]: command: only a backend tool has it"),
        ("a.frontend", {"command": ["ls"]}, "tools[0]: command: only a backend tool has it"),
        ("a.action", {"viewport": "v"}, "tools[0]: viewport: only a frontend tool has it"),
        ("a.frontend", {"answerers": {"anyOf": ["tenant"], "count": 2}}, "tools[0]: answerers.count: a form has one"),
        ("a.backend", {"timeoutMs": 5}, "tools[0]: timeoutMs: only a frontend tool has it"),
        ("a.backend", {"resultSchema": {}}, "tools[0]: resultSchema: only a frontend tool has it"),
        ("a.frontend", {"resultSchema": {"type": "none"}}, "tools[0].resultSchema: $.type"),
        ("a.frontend", {"resultSchema": {"title": "x" * 65536}}, "tools[0].resultSchema: longer than 65536 bytes"),
        ("a.frontend", {"timeoutMs": 0}, "tools[0].timeoutMs: "),
        ("a.frontend", {"timeoutMs": 10**9}, "tools[0].timeoutMs: "),
        ("a.frontend", {"viewport": "../v"}, "tools[0].viewport: "),
        ("a.action", {"approval": "maybe"}, "tools[0].approval: "),
        ("a.action", {"kind": "frontend"}, "tools[0].kind: "),
        ("a.frontend", {"type": "action", "viewport": "v"}, "tools[0]: viewport: only a frontend tool has it"),
        ("a.backend", {"type": "frontend", "command": ["ls"]}, "tools[0]: command: only a backend tool has it"),
        ("a.backend", {"type": "none"}, "tools[0].type: "),
        ("a.action", {"afterCallHint": "1", "after_call_hint": "2"}, "tools[0].after_call_hint: "),
        ("a.backend", {"parameters": {"properties": {"x": {"type": "any"}}}}, "tools[0].parameters: $.properties.x"),
        ("a.backend", {"parameters": {"$ref": "http://127.0.0.1:9/x"}}, "tools[0].parameters: $: "),
    ],
)
def test_an_invalid_field_is_named_with_its_rule(
    tmp_path: Path, name: str, fields: dict[str, Any], problem: str
) -> None:
    write(tmp_path, name, {"name": "tool", **fields})
    with structlog.testing.capture_logs() as logged:
        catalogue = read_catalogue(tmp_path)
    (refusal,) = refusals(logged)
    assert refusal["file"] == name
    assert refusal["problem"].startswith(problem)
    assert catalogue.find("tool") is None


def test_actions_and_frontend_tools_take_their_files_settings(tmp_path: Path) -> None:
    write(tmp_path, "a.action", {"name": "fireworks", "description": "Bang.", "effect": "read"})
    stated = {"viewport": "form", "timeoutMs": 5000, "approval": "deny", "resultSchema": {"type": "object"}}
    write(tmp_path, "b.frontend", {"name": "dialog", **stated})
    (tmp_path / "form.html").write_text("<form>")
    fireworks, dialog = (read_catalogue(tmp_path).find(name) for name in ("fireworks", "dialog"))
    assert fireworks is not None
    assert dialog is not None
    assert (fireworks.tool.effect, fireworks.tool.front_end) == ("read", FrontEnd("action"))
    assert (dialog.tool.effect, dialog.tool.front_end) == (
        "once",
        FrontEnd("frontend", "form", 5000, '{"type": "object"}'),
    )
    assert dialog.tool.approval == "deny"


@pytest.mark.parametrize("file", ["a.backend", "a.action", "a.frontend", "a.html", "a.qlc"])
@pytest.mark.parametrize("kind", ["action", "frontend"])
def test_a_tools_type_decides_its_kind_whatever_the_files_suffix(
    tmp_path: Path, file: str, kind: Literal["action"]
) -> None:
    write(tmp_path, file, {"type": kind, "name": "dialog"})
    (tmp_path / "dialog.custom").write_text("{}")
    dialog = read_catalogue(tmp_path).find("dialog")
    assert dialog is not None
    assert dialog.tool.front_end == FrontEnd(kind, "dialog" if kind == "frontend" else "")
    assert not dialog.tool.unavailable


def test_tools_of_other_sources_can_be_replaced_but_cannot_take_a_name(tmp_path: Path) -> None:
    write(tmp_path, "a.backend", OWN)
    catalogue = read_catalogue(tmp_path)
    found = catalogue.find("hello")
    assert found is not None
    given = [dataclasses.replace(found.tool, name=name) for name in ("files__read", "HELLO", "Read_File", "twice")]
    with structlog.testing.capture_logs() as logged:
        catalogue.replace_source("files", given)
        catalogue.replace_source("others", [dataclasses.replace(found.tool, name="TWICE")])
    assert {entry["tool"] for entry in refusals(logged)} == {"HELLO", "Read_File", "twice", "TWICE"}
    assert catalogue.find("FILES__read") is not None
    own = catalogue.find("hello")
    assert own is not None
    assert own.tool.name == "hello"
    assert all(catalogue.find(name) is None for name in ("bad", "twice"))
    catalogue.reload()
    assert catalogue.find("files__read") is not None
    catalogue.replace_source("files", [])
    assert catalogue.find("files__read") is None
    assert catalogue.find("twice") is not None


@pytest.mark.parametrize(
    ("tool", "problem"),
    [
        ({"name": "nobody", "description": "…"}, "no built-in tool has this name"),
        ({"name": "_BASH_", "command": ["echo"]}, "is built in"),
    ],
)
def test_a_definition_of_neither_a_known_nor_a_custom_tool_is_refused(tmp_path: Path, tool: Any, problem: str) -> None:
    write(tmp_path, "a.backend", tool, OWN)
    with structlog.testing.capture_logs() as logged:
        catalogue = read_catalogue(tmp_path)
    (refusal,) = refusals(logged)
    assert refusal["tool"] == tool["name"]
    assert problem in refusal["problem"]
    assert catalogue.find("hello") is not None


def test_a_name_defined_twice_is_refused_both_times(tmp_path: Path) -> None:
    write(tmp_path, "a.backend", OWN)
    write(tmp_path, "b.backend", OWN | {"name": "Hello"}, {"name": "read_file", "description": "1"})
    write(tmp_path, "c.backend", {"name": "READ_FILE", "description": "2"})
    with structlog.testing.capture_logs() as logged:
        catalogue = read_catalogue(tmp_path)
    assert [entry["file"] for entry in refusals(logged)] == ["a.backend", "b.backend", "b.backend", "c.backend"]
    assert catalogue.find("hello") is None
    builtin = catalogue.find("read_file")
    assert builtin is not None
    assert builtin.tool.description not in ("1", "2")


def test_the_last_good_version_stays_active_until_the_file_is_deleted(tmp_path: Path) -> None:
    write(tmp_path, "a.backend", OWN)
    catalogue = read_catalogue(tmp_path)
    (tmp_path / "a.backend").write_text("{")
    with structlog.testing.capture_logs() as logged:
        catalogue.reload()
    assert refusals(logged)[0]["last_good_kept"] is True
    assert catalogue.find("hello") is not None
    (tmp_path / "a.backend").unlink()
    catalogue.reload()
    assert catalogue.find("hello") is None


async def test_startup_reads_each_file_once(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    write(tmp_path / "tools", "a.backend", "{")
    with structlog.testing.capture_logs() as logged:
        async with serve():
            pass
    assert len(refusals(logged)) == 1


async def test_a_change_takes_effect_without_a_restart(tmp_path: Path) -> None:
    catalogue = read_catalogue(tmp_path)
    async with asyncio.timeout(200):
        async with watching_paths([tmp_path], catalogue.reload, interval_ms=50):
            write(tmp_path, "a.backend", OWN)
            while catalogue.find("hello") is None:
                await asyncio.sleep(0.05)
