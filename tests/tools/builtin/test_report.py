"""report over a real service with a scripted model: the stream and the file it creates."""

import asyncio
import io
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from PIL import Image
from pptx import Presentation
from pypdf import PdfReader

from headrace.errors import Overloaded
from headrace.streams import reading
from tests.support.timing import within
from tests.support.tools.asked_llm import AskedLlm, Step, asked_llm
from tests.support.tools.calls import find_usage, list_texts, read_deltas, request
from tests.support.tools.suite import CHAT, RUN, Serve, Suite

MARKDOWN = ["# Mills 水车\n\n", "They **turn**.\n\n## Parts\n\n", "- wheel\n- ", "stones 石头\n"]


@asynccontextmanager
async def serving_report(serve: Serve, *scripts: Sequence[Step]) -> AsyncGenerator[tuple[Suite, AskedLlm]]:
    async with asyncio.timeout(200), asked_llm(*scripts) as llm, serve(None, llm_gateway_address=llm.address) as suite:
        yield suite, llm


def make_request(kind: str, task: str = "Water mills: how they turn", **fields: Any) -> Any:
    return request("report", {"task": task, "fileType": kind}, **fields)


async def write_report(serve: Serve, kind: str, *pieces: str) -> tuple[Any, bytes]:
    """Return the artifact of a call and the bytes of its file."""
    async with serving_report(serve, pieces or MARKDOWN) as (suite, _):
        deltas = await read_deltas(suite, make_request(kind))
        assert deltas[-1].result.ok, deltas[-1].result.result
        assert list_texts(deltas) == [*(pieces or MARKDOWN)]
        (artifact,) = (delta.artifact for delta in deltas if delta.HasField("artifact"))
        data = (suite.workspace / "outputs" / artifact.name).read_bytes()
    assert f"outputs/{artifact.name}" in deltas[-1].result.result
    assert (artifact.run_id, artifact.size_bytes) == (RUN, len(data))
    assert artifact.url == f"/api/resource?chatId={CHAT}&path=outputs%2F{artifact.name}"
    return artifact, data


async def test_a_markdown_report_is_the_text_as_written(serve: Serve) -> None:
    artifact, data = await write_report(serve, "markdown")
    assert artifact.name.startswith("water-mills-how-they-turn-")
    assert (artifact.name[-3:], artifact.mime_type) == (".md", "text/markdown")
    assert data.decode() == "".join(MARKDOWN)


async def test_an_html_report_runs_no_script_and_loads_nothing(serve: Serve) -> None:
    bad = "<script>alert(1)</script> [x](javascript:alert(1)) ![p](https://tracker.example/p.png) <img src=x onerror=y>"
    artifact, data = await write_report(serve, "html", "# Mills <b>\n\n", bad)
    page = data.decode()
    assert artifact.mime_type == "text/html"
    assert "<title>Mills &lt;b&gt;</title>" in page
    assert "<script" not in page
    assert "<img" not in page
    assert 'href="javascript' not in page
    assert "default-src 'none'" in page


async def test_slides_have_a_title_and_one_for_each_heading(serve: Serve) -> None:
    artifact, data = await write_report(serve, "ppt")
    assert artifact.name.endswith(".pptx")
    slides: list[Any] = list(Presentation(io.BytesIO(data)).slides)
    texts: list[list[str]] = [[shape.text_frame.text for shape in slide.placeholders] for slide in slides]
    assert texts == [["Mills 水车", "They turn."], ["Parts", "wheel\nstones 石头"]]


async def test_a_pdf_has_the_text_and_the_chats_images(serve: Serve) -> None:
    script = ["# Mills\n\n![Turns](outputs/a.png)\n\n![No](../../etc/x.png)\n\n\U0001fae0 ok"]
    async with serving_report(serve, script) as (suite, llm):
        outputs = suite.workspace / "outputs"
        outputs.mkdir(parents=True)
        Image.new("RGB", (40, 30)).save(outputs / "a.png")
        (outputs / "notes.txt").write_text("no picture")
        deltas = await read_deltas(suite, make_request("pdf"))
        (artifact,) = (delta.artifact for delta in deltas if delta.HasField("artifact"))
        data = (outputs / artifact.name).read_bytes()
    assert artifact.mime_type == "application/pdf"
    (page,) = PdfReader(io.BytesIO(data)).pages
    assert "Mills" in page.extract_text()
    assert len(page.images) == 1
    prompt = "".join(part.text for part in llm.requests[0].messages[-1].content)
    assert prompt.endswith("Files that can be placed:\n- outputs/a.png")
    assert "; 1 characters are in no font" in deltas[-1].result.result
    assert deltas[-1].result.result.endswith("no picture or CSV file of the chat: '../../etc/x.png'")


async def test_an_image_whose_name_is_not_utf_8_is_not_offered_to_the_model(serve: Serve) -> None:
    async with serving_report(serve, MARKDOWN) as (suite, llm):
        outputs = suite.workspace / "outputs"
        outputs.mkdir(parents=True)
        (outputs / os.fsdecode(b"\xff.png")).write_bytes(b"\x89PNG")
        (outputs / "a.png").write_bytes(b"\x89PNG")
        deltas = await read_deltas(suite, make_request("markdown"))
    assert deltas[-1].result.ok, deltas[-1].result.result
    assert llm.requests[0].messages[1].content[0].text.endswith("Files that can be placed:\n- outputs/a.png")


async def test_a_report_no_font_can_show_becomes_text_without_a_file(serve: Serve) -> None:
    async with serving_report(serve, ["# T ꡀ"]) as (suite, _):
        deltas = await read_deltas(suite, make_request("pdf"))
        assert not list((suite.workspace / "outputs").glob("*"))
    assert not deltas[-1].result.ok
    assert deltas[-1].result.result.startswith("no file was made: no font for PHAGS-PA characters")


async def test_a_code_fence_around_the_whole_report_is_removed(serve: Serve) -> None:
    _, data = await write_report(serve, "markdown", "```markdown\n# T\n\ntext\n", "```\n")
    assert data == b"# T\n\ntext"


async def test_the_same_call_writes_the_same_file_and_another_call_another(serve: Serve) -> None:
    async with serving_report(serve, ["one"], ["two"]) as (suite, _):
        await read_deltas(suite, make_request("markdown", effect_key=f"{RUN}/a/1"))
        again = await read_deltas(suite, make_request("markdown", effect_key=f"{RUN}/a/1"))
        await read_deltas(suite, make_request("markdown", effect_key=f"{RUN}/b/1"))
        contents = sorted(path.read_text() for path in (suite.workspace / "outputs").glob("*.md"))
    assert again[-1].result.ok
    assert contents == ["one", "two"]


async def test_a_task_in_any_script_names_its_file(serve: Serve) -> None:
    async with serving_report(serve, ["x"], ["x"]) as (suite, _):
        await read_deltas(suite, make_request("markdown", "关于水车的报告" * 20))
        await read_deltas(suite, make_request("markdown", "../../!!", effect_key="k"))
        names = sorted(path.name[:-10] for path in (suite.workspace / "outputs").glob("*.md"))
    assert names == ["report", ("关于水车的报告" * 20)[:40]]


@pytest.mark.parametrize(
    ("script", "message"),
    [([Overloaded("busy")], "busy"), (["# Mi", Overloaded("busy")], "# Mi"), ([" \n"], "nothing")],
)
async def test_a_failing_model_creates_no_file(serve: Serve, script: list[Step], message: str) -> None:
    async with serving_report(serve, script) as (suite, _):
        deltas = await read_deltas(suite, make_request("pdf"))
        assert not list((suite.workspace / "outputs").glob("*"))
    assert not deltas[-1].result.ok
    assert message in deltas[-1].result.result
    assert find_usage(deltas).model_calls == 1


async def test_an_unknown_file_type_is_refused_by_the_schema(serve: Serve) -> None:
    async with serving_report(serve) as (suite, _):
        deltas = await read_deltas(suite, make_request("docx"))
    assert "$.fileType" in deltas[-1].result.result


async def test_cancelling_the_call_stops_the_model_at_once(serve: Serve) -> None:
    async with serving_report(serve, ["a", None]) as (suite, llm):
        async with reading(suite.stub.Execute(make_request("pdf"))) as deltas:
            assert (await anext(deltas)).output.delta == "a"
        async with within(0.5):
            await llm.left.wait()


async def test_a_truncated_report_is_created_and_marked(serve: Serve) -> None:
    async with serving_report(serve, ["# Mills\n\nThey tu"]) as (suite, llm):
        llm.finish_reason = "length"
        deltas = await read_deltas(suite, make_request("markdown"))
    assert deltas[-1].result.ok
    assert "its text was cut" in deltas[-1].result.result
