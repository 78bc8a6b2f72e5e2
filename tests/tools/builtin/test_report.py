"""report over a real service with a scripted model: what is streamed, and the file that is made."""

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
from tests.support.tools.calls import deltas_of, request, texts, usage
from tests.support.tools.suite import CHAT, RUN, Serve, Suite

MARKDOWN = ["# Mills 水车\n\n", "They **turn**.\n\n## Parts\n\n", "- wheel\n- ", "stones 石头\n"]


@asynccontextmanager
async def writing(serve: Serve, *scripts: Sequence[Step]) -> AsyncGenerator[tuple[Suite, AskedLlm]]:
    async with asyncio.timeout(200), asked_llm(*scripts) as llm, serve(None, llm_gateway_address=llm.address) as suite:
        yield suite, llm


def report(kind: str, task: str = "Water mills: how they turn", **fields: Any) -> Any:
    return request("report", {"task": task, "fileType": kind}, **fields)


async def written(serve: Serve, kind: str, *said: str) -> tuple[Any, bytes]:
    """The artifact and the bytes of its file."""
    async with writing(serve, said or MARKDOWN) as (suite, _):
        seen = await deltas_of(suite, report(kind))
        assert seen[-1].result.ok, seen[-1].result.result
        assert texts(seen) == [*(said or MARKDOWN)]
        (artifact,) = (delta.artifact for delta in seen if delta.HasField("artifact"))
        data = (suite.workspace / "outputs" / artifact.name).read_bytes()
    assert f"outputs/{artifact.name}" in seen[-1].result.result
    assert (artifact.run_id, artifact.size_bytes) == (RUN, len(data))
    assert artifact.url == f"/api/resource?chatId={CHAT}&path=outputs%2F{artifact.name}"
    return artifact, data


async def test_markdown_is_the_text_as_it_was_written(serve: Serve) -> None:
    artifact, data = await written(serve, "markdown")
    assert artifact.name.startswith("water-mills-how-they-turn-")
    assert (artifact.name[-3:], artifact.mime_type) == (".md", "text/markdown")
    assert data.decode() == "".join(MARKDOWN)


async def test_a_web_page_runs_and_loads_nothing(serve: Serve) -> None:
    bad = "<script>alert(1)</script> [x](javascript:alert(1)) ![p](https://tracker.example/p.png) <img src=x onerror=y>"
    artifact, data = await written(serve, "html", "# Mills <b>\n\n", bad)
    page = data.decode()
    assert artifact.mime_type == "text/html"
    assert "<title>Mills &lt;b&gt;</title>" in page
    assert "<script" not in page
    assert "<img" not in page
    assert 'href="javascript' not in page
    assert "default-src 'none'" in page


async def test_slides_have_a_title_and_one_for_each_heading(serve: Serve) -> None:
    artifact, data = await written(serve, "ppt")
    assert artifact.name.endswith(".pptx")
    slides: list[Any] = list(Presentation(io.BytesIO(data)).slides)
    shown: list[list[str]] = [[shape.text_frame.text for shape in slide.placeholders] for slide in slides]
    assert shown == [["Mills 水车", "They turn."], ["Parts", "wheel\nstones 石头"]]


async def test_a_pdf_has_the_text_and_the_pictures_of_the_chat(serve: Serve) -> None:
    script = ["# Mills\n\n![Turns](outputs/a.png)\n\n![No](../../etc/x.png)\n\n\U0001fae0 ok"]
    async with writing(serve, script) as (suite, llm):
        outputs = suite.workspace / "outputs"
        outputs.mkdir(parents=True)
        Image.new("RGB", (40, 30)).save(outputs / "a.png")
        (outputs / "notes.txt").write_text("no picture")
        seen = await deltas_of(suite, report("pdf"))
        (artifact,) = (delta.artifact for delta in seen if delta.HasField("artifact"))
        data = (outputs / artifact.name).read_bytes()
    assert artifact.mime_type == "application/pdf"
    (page,) = PdfReader(io.BytesIO(data)).pages
    assert "Mills" in page.extract_text()
    assert len(page.images) == 1
    asked = "".join(part.text for part in llm.requests[0].messages[-1].content)
    assert asked.endswith("Files that can be placed:\n- outputs/a.png")
    assert "; 1 characters are in no font" in seen[-1].result.result
    assert seen[-1].result.result.endswith("no picture or CSV file of the chat: '../../etc/x.png'")


async def test_a_picture_whose_name_is_no_text_is_not_told_to_the_writer(serve: Serve) -> None:
    async with writing(serve, MARKDOWN) as (suite, llm):
        outputs = suite.workspace / "outputs"
        outputs.mkdir(parents=True)
        (outputs / os.fsdecode(b"\xff.png")).write_bytes(b"\x89PNG")
        (outputs / "a.png").write_bytes(b"\x89PNG")
        seen = await deltas_of(suite, report("markdown"))
    assert seen[-1].result.ok, seen[-1].result.result
    assert llm.requests[0].messages[1].content[0].text.endswith("Files that can be placed:\n- outputs/a.png")


async def test_a_report_that_no_font_can_show_is_no_file_but_a_text_for_the_model(serve: Serve) -> None:
    async with writing(serve, ["# T ꡀ"]) as (suite, _):
        seen = await deltas_of(suite, report("pdf"))
        assert not list((suite.workspace / "outputs").glob("*"))
    assert not seen[-1].result.ok
    assert seen[-1].result.result.startswith("no file was made: no font for PHAGS-PA characters")


async def test_a_code_block_around_the_whole_is_taken_off(serve: Serve) -> None:
    _, data = await written(serve, "markdown", "```markdown\n# T\n\ntext\n", "```\n")
    assert data == b"# T\n\ntext"


async def test_the_same_call_writes_the_same_file_and_another_call_another(serve: Serve) -> None:
    async with writing(serve, ["one"], ["two"]) as (suite, _):
        await deltas_of(suite, report("markdown", effect_key=f"{RUN}/a/1"))
        again = await deltas_of(suite, report("markdown", effect_key=f"{RUN}/a/1"))
        await deltas_of(suite, report("markdown", effect_key=f"{RUN}/b/1"))
        contents = sorted(path.read_text() for path in (suite.workspace / "outputs").glob("*.md"))
    assert again[-1].result.ok
    assert contents == ["one", "two"]


async def test_a_task_in_any_script_names_its_file(serve: Serve) -> None:
    async with writing(serve, ["x"], ["x"]) as (suite, _):
        await deltas_of(suite, report("markdown", "关于水车的报告" * 20))
        await deltas_of(suite, report("markdown", "../../!!", effect_key="k"))
        names = sorted(path.name[:-10] for path in (suite.workspace / "outputs").glob("*.md"))
    assert names == ["report", ("关于水车的报告" * 20)[:40]]


@pytest.mark.parametrize(
    ("script", "said"), [([Overloaded("busy")], "busy"), (["# Mi", Overloaded("busy")], "# Mi"), ([" \n"], "nothing")]
)
async def test_a_model_that_fails_makes_no_file(serve: Serve, script: list[Step], said: str) -> None:
    async with writing(serve, script) as (suite, _):
        seen = await deltas_of(suite, report("pdf"))
        assert not list((suite.workspace / "outputs").glob("*"))
    assert not seen[-1].result.ok
    assert said in seen[-1].result.result
    assert usage(seen).model_calls == 1


async def test_a_file_type_that_is_none_is_refused_by_the_schema(serve: Serve) -> None:
    async with writing(serve) as (suite, _):
        seen = await deltas_of(suite, report("docx"))
    assert "$.fileType" in seen[-1].result.result


async def test_leaving_stops_the_model_at_once(serve: Serve) -> None:
    async with writing(serve, ["a", None]) as (suite, llm):
        async with reading(suite.stub.Execute(report("pdf"))) as deltas:
            assert (await anext(deltas)).output.delta == "a"
        async with within(0.5):
            await llm.left.wait()


async def test_a_text_that_was_cut_is_made_and_told(serve: Serve) -> None:
    async with writing(serve, ["# Mills\n\nThey tu"]) as (suite, llm):
        llm.finish_reason = "length"
        seen = await deltas_of(suite, report("markdown"))
    assert seen[-1].result.ok
    assert "its text was cut" in seen[-1].result.result
