"""Views of frontend tools: files of every kind, served over a real server."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import structlog

from headrace.errors import InvalidRequest, NotFound
from headrace.streams import rpc_errors
from headrace.v1 import tools_pb2
from services.tools.catalogue.catalogue import Catalogue
from services.tools.catalogue.definitions import FILE_BYTES_MAX
from services.tools.toolkit.tool import FrontEnd
from tests.support.catalogue import read_catalogue
from tests.support.tools.suite import Serve

FORM = '{"fields": [{"name": "city", "max": 123456789012345678901234567890}]}'
DIALOG = {"name": "dialog", "description": "Ask.", "parameters": {"type": "object"}}


def loaded(folder: Path) -> tuple[Catalogue, list[dict[str, Any]]]:
    """Read a folder's catalogue; return it and the log lines of refusals."""
    with structlog.testing.capture_logs() as logged:
        catalogue = read_catalogue(folder)
    return catalogue, [dict(entry) for entry in logged if entry["log_level"] == "error"]


async def test_html_views_are_served_as_text_and_other_views_as_their_own_json(serve: Serve) -> None:
    async with serve() as suite:
        (suite.definitions / "page.html").write_text("<p>你好</p>")
        for suffix in ("qlc", "dqlc", "json_schema", "custom"):
            (suite.definitions / f"form_{suffix}.{suffix}").write_text(FORM)
        suite.catalogue.reload()

        async def view(key: str) -> tools_pb2.GetViewportResponse:
            with rpc_errors():
                return await suite.stub.GetViewport(tools_pb2.GetViewportRequest(viewport_key=key))

        page = await view("PAGE")
        forms = [await view(f"form_{suffix}") for suffix in ("qlc", "dqlc", "json_schema", "custom")]
        for unknown in ("nobody", "../page", "page.html"):
            with pytest.raises(NotFound):
                await view(unknown)
        for wrong in ("", "x" * 200):
            with pytest.raises(InvalidRequest):
                await view(wrong)
    assert (page.html, page.HasField("view")) == ("<p>你好</p>", False)
    assert {(form.view, form.HasField("html")) for form in forms} == {(FORM, False)}


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("a.qlc", b"{", "not valid JSON"),
        ("a.custom", b"<p>", "not valid JSON"),
        ("a.json_schema", b"[" * 100_000, "depth limit exceeded"),
        ("a.dqlc", b"[" * 100 + b"]" * 100, "nested deeper than 64 levels"),
        ("a.html", b"\xff", "not UTF-8"),
        ("a.html", b" " * (FILE_BYTES_MAX + 1), "larger than"),
        ("a b.html", b"<p>", "its name"),
        ("a.html", b'{"tools": [{"name": "a", "nam": 1}]}', "tools[0].nam"),
        ("a.qlc", b'{"tools": 7}', "tools: "),
        ("a.html", b'{"tools": [{"name": "a", "command": ["ls"]}]}', "command: only a backend tool"),
    ],
)
def test_a_bad_view_is_named_and_the_others_stay_active(tmp_path: Path, name: str, data: bytes, problem: str) -> None:
    (tmp_path / name).write_bytes(data)
    (tmp_path / "good.html").write_text("<p>")
    catalogue, (refusal,) = loaded(tmp_path)
    assert refusal["file"] == name
    assert problem in refusal["problem"]
    assert catalogue.find_view("good") is not None


def test_a_view_key_defined_by_two_files_is_refused_in_both(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<p>")
    (tmp_path / "A.qlc").write_text("{}")
    catalogue, refused = loaded(tmp_path)
    assert [entry["file"] for entry in refused] == ["A.qlc", "a.html"]
    assert catalogue.find_view("a") is None


def test_the_last_good_view_stays_until_its_file_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "a.qlc").write_text(FORM)
    catalogue, _ = loaded(tmp_path)
    (tmp_path / "a.qlc").write_text("{")
    catalogue.reload()
    view = catalogue.find_view("a")
    assert view is not None
    assert view.text == FORM
    (tmp_path / "a.qlc").unlink()
    catalogue.reload()
    assert catalogue.find_view("a") is None


@pytest.mark.parametrize("name", ["dialog.frontend", "other.html", "other.qlc", "other.dqlc"])
def test_a_frontend_tool_may_be_defined_in_a_views_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(json.dumps({"tools": [DIALOG]}))
    (tmp_path / "dialog.json_schema").write_text("{}")
    catalogue, refused = loaded(tmp_path)
    found = catalogue.find("dialog")
    assert refused == []
    assert found is not None
    assert (found.tool.front_end, found.tool.unavailable) == (FrontEnd("frontend", "dialog"), "")
    assert catalogue.find_view("other") is None


@pytest.mark.parametrize("text", ["<p>tools</p>", "{ not json", '{"tool": 1}', "[1]"])
def test_html_without_definitions_is_a_view(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.html").write_text(text)
    catalogue, refused = loaded(tmp_path)
    view = catalogue.find_view("a")
    assert refused == []
    assert view is not None
    assert (view.text, view.is_html) == (text, True)


async def test_a_tool_is_unavailable_until_its_view_exists(serve: Serve) -> None:
    async with serve() as suite:
        (suite.definitions / "a.frontend").write_text(json.dumps({"tools": [DIALOG | {"viewport": "shown"}]}))
        suite.catalogue.reload()
        before = (await suite.stub.GetTool(tools_pb2.GetToolRequest(tool_name="dialog"))).tool
        (suite.definitions / "shown.html").write_text("<p>")
        suite.catalogue.reload()
        after = (await suite.stub.GetTool(tools_pb2.GetToolRequest(tool_name="dialog"))).tool
    assert "'shown' does not exist" in before.unavailable
    assert (after.HasField("unavailable"), after.viewport_key) == (False, "shown")


@pytest.mark.parametrize("suffix", ["html", "qlc", "dqlc"])
async def test_a_tool_defined_in_a_views_file_needs_no_view_and_finds_one_in_viewports(
    serve: Serve, suffix: str
) -> None:
    async with serve() as suite:

        async def load_tool() -> tools_pb2.Tool:
            suite.catalogue.reload()
            return (await suite.stub.GetTool(tools_pb2.GetToolRequest(tool_name="dialog"))).tool

        (suite.definitions / f"older.{suffix}").write_text(json.dumps({"tools": [DIALOG]}))
        alone = await load_tool()
        viewports = suite.definitions.with_name("viewports")
        viewports.mkdir()
        (viewports / f"older.{suffix}").write_text(FORM)
        by_file = await load_tool()
        with rpc_errors():
            viewport = await suite.stub.GetViewport(tools_pb2.GetViewportRequest(viewport_key=by_file.viewport_key))
        (viewports / "dialog.html").write_text("<p>")
        by_name = await load_tool()
    assert {tool.HasField("unavailable") for tool in (alone, by_file, by_name)} == {False}
    assert [tool.viewport_key for tool in (alone, by_file, by_name)] == ["dialog", "older", "dialog"]
    assert FORM in (viewport.html, viewport.view)


async def test_a_view_saved_in_viewports_takes_effect_while_the_service_runs(serve: Serve) -> None:
    async with serve() as suite:
        (suite.definitions / "a.frontend").write_text(json.dumps({"tools": [DIALOG]}))
        viewports = suite.definitions.with_name("viewports")
        viewports.mkdir()
        (viewports / "dialog.html").write_text("<p>")
        request = tools_pb2.GetViewportRequest(viewport_key="dialog")
        while True:
            try:
                with rpc_errors():
                    view = await suite.stub.GetViewport(request)
                break
            except NotFound:  # nothing tells when a change is seen
                await asyncio.sleep(0.01)
    assert view.html == "<p>"


def test_a_bad_view_in_viewports_is_named_with_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "tools"
    (tmp_path / "viewports").mkdir()
    (tmp_path / "viewports" / "a.qlc").write_text("{")
    _, (refusal,) = loaded(folder)
    assert refusal["file"] == "viewports/a.qlc"
