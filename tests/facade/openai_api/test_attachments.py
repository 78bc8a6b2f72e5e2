"""Pictures, sounds and files in requests of the official client; all of them become uploads of the chat."""

import base64
import json
from pathlib import Path
from typing import Any

import openai
import pytest

from headrace.errors import InvalidRequest
from services.facade.adapters.attachments.attachment import ATTACHMENTS_MAX
from services.facade.adapters.call_ids import CallId
from tests.support.facade.openai_api import a_run, answer_from, client
from tests.support.facade.scripted import CHAT, RUN, Script, answering, suite

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00\x90wS\xde"
GIF = b"GIF89a\x01\x00\x01\x00\x00\x00\x00"


def url_of(data: bytes, mime_type: str = "image/png") -> str:
    return f"data:{mime_type};base64,{base64.b64encode(data).decode()}"


def picture(data: bytes = PNG, **more: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url_of(data), **more}}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


async def test_pictures_sounds_and_files_of_a_completion_are_references_of_its_query(tmp_path: Path) -> None:
    sound = {"type": "input_audio", "input_audio": {"data": base64.b64encode(b"RIFFwav").decode(), "format": "wav"}}
    report = {"type": "file", "file": {"filename": "report.pdf", "file_data": url_of(b"%PDF-1", "application/pdf")}}
    asked: Any = [user(said("Compare"), picture(PNG, detail="low"), said("with"), sound, report)]
    async with client(tmp_path, Script(query=answering("alike"))) as (api, facade):
        answer = await api.chat.completions.create(model="helper", messages=asked)
        (query,) = facade.script.requests
        uploaded = facade.tools.uploaded
    assert answer.choices[0].message.content == "alike"
    names = [start.name for start, _ in uploaded]
    assert [data for _, data in uploaded] == [PNG, b"RIFFwav", b"%PDF-1"]
    assert [(name[:6], name[-4:]) for name in names] == [("image-", ".png"), ("audio-", ".wav"), ("report", ".pdf")]
    assert [start.chat_id for start, _ in uploaded] == ["", CHAT, CHAT]
    assert query.message == f"Compare\n[{names[0]}]\nwith\n[{names[1]}]\n[report.pdf]"
    assert query.chat_id == CHAT
    assert [reference.name for reference in query.references] == names
    assert json.loads(query.references[0].meta) == {"path": f"uploads/{names[0]}", "detail": "low"}


async def test_pictures_of_earlier_messages_are_shown_in_a_new_chat_alone(tmp_path: Path) -> None:
    asked: Any = [user(picture(GIF)), {"role": "assistant", "content": "A dot."}, user(said("And this?"), picture())]
    async with client(tmp_path, Script(query=answering())) as (api, facade):
        await api.chat.completions.create(model="helper", messages=asked)
        await api.chat.completions.create(model="helper", messages=asked, metadata={"chat_id": CHAT})
        queries, uploaded = facade.script.requests, facade.tools.uploaded
    assert [data for _, data in uploaded] == [GIF, PNG, PNG]
    assert [len(query.references) for query in queries] == [2, 1]
    assert queries[0].history[0].content == f"[{uploaded[0][0].name}]"
    assert queries[1].message == f"And this?\n[{uploaded[2][0].name}]"


async def test_a_response_takes_pictures_and_files(tmp_path: Path) -> None:
    parts: Any = [
        {"type": "input_text", "text": "What is it?"},
        {"type": "input_image", "image_url": url_of(PNG), "detail": "auto"},
        {"type": "input_file", "filename": "a.csv", "file_data": base64.b64encode(b"a,b").decode()},
    ]
    async with client(tmp_path, Script(query=answering("a dot"))) as (api, facade):
        answer = await api.responses.create(model="helper", input=[{"role": "user", "content": parts}])
        (query,) = facade.script.requests
        uploaded = facade.tools.uploaded
    assert answer.output_text == "a dot"
    assert [data for _, data in uploaded] == [PNG, b"a,b"]
    assert [reference.name for reference in query.references] == [uploaded[0][0].name, "a.csv"]


async def test_a_result_may_have_a_picture(tmp_path: Path) -> None:
    """Shown with the query where the call was another program's; a file of its chat where a run waits for it."""
    part = {"type": "input_image", "image_url": url_of(PNG)}
    output = [{"type": "input_text", "text": "Seen:"}, part]
    waiting = Script(query=answering(), attaches=[answer_from(8, "a dot")], run=a_run("waiting"))
    async with client(tmp_path, waiting) as (api, facade):
        for call_id in ("c", str(CallId(RUN, "t_0000000a", 7))):
            items: Any = [
                {"role": "user", "content": "Look"},
                {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": call_id, "output": output},
            ]
            answer = await api.responses.create(model="helper", input=items)
        query, submit, _ = facade.script.requests
        (shown, _), (kept, data) = facade.tools.uploaded
    assert [reference.name for reference in query.references] == [shown.name]
    assert query.progress[1].content == f"Seen:\n[{shown.name}]"
    assert (kept.chat_id, data, json.loads(submit.payload)) == (CHAT, PNG, f"Seen:\n[{kept.name}]")
    assert answer.output_text == "a dot"


async def test_base64_may_have_line_breaks_another_alphabet_no_padding_or_be_a_data_url(tmp_path: Path) -> None:
    sound, lines = base64.b64encode(b"RIFF").decode(), base64.encodebytes(PNG * 2).decode()
    assert "\n" in lines.strip()
    other = b"\xfb\xef\xff\xbe"
    assert base64.urlsafe_b64encode(other) == b"--__vg=="
    parts: list[Any] = [
        {"type": "input_audio", "input_audio": {"data": f"data:;base64,{sound}", "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": f"data:audio/x-wav;codec=pcm;base64,{sound}", "format": "wav"}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{lines}"}},
        {"type": "image_url", "image_url": {"url": f"DATA:image/png;charset=utf-8;BASE64,{lines}"}},
        {"type": "file", "file": {"filename": "a", "file_data": lines}},
        {
            "type": "file",
            "file": {"filename": "a", "file_data": f" {base64.urlsafe_b64encode(other).decode().strip('=')}"},
        },
    ]
    async with client(tmp_path, Script(query=answering())) as (api, facade):
        await api.chat.completions.create(model="helper", messages=[user(*parts)])  # pyright: ignore[reportArgumentType] - plain dictionaries
        assert [data for _, data in facade.tools.uploaded] == [b"RIFF", b"RIFF", PNG * 2, PNG * 2, PNG * 2, other]


async def test_a_body_may_be_as_large_as_its_pictures(tmp_path: Path) -> None:
    large = PNG + bytes(5 * 1024 * 1024)
    async with client(tmp_path, Script(query=answering())) as (api, facade):
        await api.chat.completions.create(model="helper", messages=[user(picture(large))])  # pyright: ignore[reportArgumentType] - plain dictionaries
        assert [data for _, data in facade.tools.uploaded] == [large]
        (query,) = facade.script.requests
        assert query.ByteSize() < 1024


@pytest.mark.parametrize(
    ("part", "param", "rule"),
    [
        ({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, "[1].image_url", "data: URL"),
        ({"type": "image_url", "image_url": {"url": url_of(b"no picture")}}, "[1].image_url", "PNG, JPEG, GIF or WebP"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,%%"}}, "[1].image_url", "valid base64"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "ogg"}}, "[1].input_audio", "wav or mp3"),
        ({"type": "file", "file": {"file_id": "file-1"}}, "[1].file_id", "POST /v1/files"),
        ({"type": "file", "file": {"file_url": "https://example.org/a.pdf"}}, "[1]", "no address is fetched"),
        ({"type": "video_url", "video_url": {"url": "x"}}, "[1].type", "'video_url'"),
    ],
    ids=["an address", "no picture", "no base64", "another sound", "an id of others", "a file's address", "a video"],
)
async def test_a_part_that_cannot_be_read_is_named_with_its_rule(
    tmp_path: Path, part: Any, param: str, rule: str
) -> None:
    asked: Any = [user(said("this"), part)]
    async with client(tmp_path, Script(query=answering())) as (api, facade):
        with pytest.raises(openai.BadRequestError) as caught:
            await api.chat.completions.create(model="helper", messages=asked)
        assert not facade.tools.uploaded
    assert caught.value.param == f"messages[0].content{param}"
    assert rule in caught.value.message


async def test_what_the_uploads_refuse_is_named_as_the_callers_part(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=answering())) as (api, facade):
        facade.tools.refused = InvalidRequest.of("file", "is larger than 10 MiB")
        with pytest.raises(openai.BadRequestError) as caught:
            await api.chat.completions.create(model="helper", messages=[user(picture())])  # pyright: ignore[reportArgumentType] - plain dictionaries
    assert (caught.value.param, "is larger than 10 MiB" in caught.value.message) == ("messages[0].content[0]", True)


async def test_too_many_attachments_are_refused(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=answering())) as (api, facade):
        with pytest.raises(openai.BadRequestError) as caught:
            await api.chat.completions.create(
                model="helper",
                messages=[user(*[picture()] * (ATTACHMENTS_MAX + 1))],  # pyright: ignore[reportArgumentType] - plain dictionaries
            )
        assert not facade.tools.uploaded
    assert caught.value.param == f"messages[0].content[{ATTACHMENTS_MAX}]"


async def test_a_file_is_stored_first_and_named_by_its_id(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=answering())) as (api, facade):
        made = await api.files.create(file=("报告 1.pdf", b"%PDF-1"), purpose="user_data")
        again = await api.files.retrieve(made.id)
        parts: Any = [{"type": "input_text", "text": "Sum it up"}, {"type": "input_file", "file_id": made.id}]
        await api.responses.create(model="helper", input=[{"role": "user", "content": parts}])
        asked: Any = [user(said("Sum it up"), {"type": "file", "file": {"file_id": made.id}})]
        await api.chat.completions.create(model="helper", messages=asked)
        queries, uploaded = facade.script.requests, facade.tools.uploaded
    assert (made.filename, made.bytes, made.purpose) == ("报告 1.pdf", 6, "user_data")
    assert again.id == made.id
    assert [(start.name, data) for start, data in uploaded] == [("报告 1.pdf", b"%PDF-1")] * 3
    assert [query.message for query in queries] == ["Sum it up\n[报告 1.pdf]"] * 2
    assert [query.references[0].name for query in queries] == ["报告 1.pdf"] * 2


async def test_a_file_that_is_gone_is_named_as_the_callers_part(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=answering())) as (api, facade):
        made = await api.files.create(file=("a.txt", b"hello"), purpose="user_data")
        facade.tools.uploaded.clear()
        asked: Any = [user(said("this"), {"type": "file", "file": {"file_id": made.id}})]
        with pytest.raises(openai.BadRequestError) as caught:
            await api.chat.completions.create(model="helper", messages=asked)
        with pytest.raises(openai.NotFoundError):
            await api.files.retrieve(made.id)
        with pytest.raises(openai.NotFoundError):
            await api.files.retrieve("file-nobody")
    assert caught.value.param == "messages[0].content[1]"


@pytest.mark.parametrize("path", ["/v1/files", "/api/upload"])
async def test_a_name_that_is_no_utf_8_is_the_callers_mistake(tmp_path: Path, path: str) -> None:
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="\xff.txt"\r\n\r\nhello\r\n--b--\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    async with suite(tmp_path, Script(query=answering())) as facade:
        async with facade.http.post(path, data=body, headers=headers) as response:
            assert (response.status, "UTF-8" in await response.text()) == (400, True)
        assert not facade.tools.uploaded
