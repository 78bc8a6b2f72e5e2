"""Images, audio and files in requests of the official client become uploads of the chat."""

import base64
import json
from pathlib import Path
from typing import Any

import openai
import pytest

from headrace.errors import InvalidRequest
from services.facade.adapters.attachments.attachment import ATTACHMENTS_MAX
from services.facade.adapters.call_ids import CallId
from tests.support.facade.openai_api import answer_from, client, make_run
from tests.support.facade.scripted import CHAT, RUN, Script, answering, suite

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00\x90wS\xde"
GIF = b"GIF89a\x01\x00\x01\x00\x00\x00\x00"


def make_data_url(data: bytes, mime_type: str = "image/png") -> str:
    return f"data:{mime_type};base64,{base64.b64encode(data).decode()}"


def picture(data: bytes = PNG, **more: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": make_data_url(data), **more}}


def make_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def make_user_message(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


async def test_images_audio_and_files_of_a_completion_become_references(tmp_path: Path) -> None:
    sound = {"type": "input_audio", "input_audio": {"data": base64.b64encode(b"RIFFwav").decode(), "format": "wav"}}
    report = {
        "type": "file",
        "file": {"filename": "report.pdf", "file_data": make_data_url(b"%PDF-1", "application/pdf")},
    }
    messages: Any = [
        make_user_message(make_text("Compare"), picture(PNG, detail="low"), make_text("with"), sound, report)
    ]
    async with client(tmp_path, Script(query=answering("alike"))) as (api, facade):
        answer = await api.chat.completions.create(model="helper", messages=messages)
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


async def test_images_of_earlier_messages_are_uploaded_only_for_a_new_chat(tmp_path: Path) -> None:
    messages: Any = [
        make_user_message(picture(GIF)),
        {"role": "assistant", "content": "A dot."},
        make_user_message(make_text("And this?"), picture()),
    ]
    async with client(tmp_path, Script(query=answering())) as (api, facade):
        await api.chat.completions.create(model="helper", messages=messages)
        await api.chat.completions.create(model="helper", messages=messages, metadata={"chat_id": CHAT})
        queries, uploaded = facade.script.requests, facade.tools.uploaded
    assert [data for _, data in uploaded] == [GIF, PNG, PNG]
    assert [len(query.references) for query in queries] == [2, 1]
    assert queries[0].history[0].content == f"[{uploaded[0][0].name}]"
    assert queries[1].message == f"And this?\n[{uploaded[2][0].name}]"


async def test_a_response_accepts_images_and_files(tmp_path: Path) -> None:
    parts: Any = [
        {"type": "input_text", "text": "What is it?"},
        {"type": "input_image", "image_url": make_data_url(PNG), "detail": "auto"},
        {"type": "input_file", "filename": "a.csv", "file_data": base64.b64encode(b"a,b").decode()},
    ]
    async with client(tmp_path, Script(query=answering("a dot"))) as (api, facade):
        answer = await api.responses.create(model="helper", input=[{"role": "user", "content": parts}])
        (query,) = facade.script.requests
        uploaded = facade.tools.uploaded
    assert answer.output_text == "a dot"
    assert [data for _, data in uploaded] == [PNG, b"a,b"]
    assert [reference.name for reference in query.references] == [uploaded[0][0].name, "a.csv"]


async def test_a_function_result_may_contain_an_image(tmp_path: Path) -> None:
    """The image goes with the query if the call was another program's, and into the chat if a run waits for it."""
    part = {"type": "input_image", "image_url": make_data_url(PNG)}
    output = [{"type": "input_text", "text": "Seen:"}, part]
    waiting = Script(query=answering(), attaches=[answer_from(8, "a dot")], run=make_run("waiting"))
    async with client(tmp_path, waiting) as (api, facade):
        for call_id in ("c", str(CallId(RUN, "t_0000000a", 7))):
            items: Any = [
                {"role": "user", "content": "Look"},
                {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": call_id, "output": output},
            ]
            answer = await api.responses.create(model="helper", input=items)
        query, submit, _ = facade.script.requests
        (query_upload, _), (submit_upload, data) = facade.tools.uploaded
    assert [reference.name for reference in query.references] == [query_upload.name]
    assert query.progress[1].content == f"Seen:\n[{query_upload.name}]"
    assert (submit_upload.chat_id, data, json.loads(submit.payload)) == (CHAT, PNG, f"Seen:\n[{submit_upload.name}]")
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
        await api.chat.completions.create(model="helper", messages=[make_user_message(*parts)])  # pyright: ignore[reportArgumentType] - plain dictionaries
        assert [data for _, data in facade.tools.uploaded] == [b"RIFF", b"RIFF", PNG * 2, PNG * 2, PNG * 2, other]


async def test_a_body_with_images_may_exceed_the_usual_limit(tmp_path: Path) -> None:
    large = PNG + bytes(5 * 1024 * 1024)
    async with client(tmp_path, Script(query=answering())) as (api, facade):
        await api.chat.completions.create(model="helper", messages=[make_user_message(picture(large))])  # pyright: ignore[reportArgumentType] - plain dictionaries
        assert [data for _, data in facade.tools.uploaded] == [large]
        (query,) = facade.script.requests
        assert query.ByteSize() < 1024


@pytest.mark.parametrize(
    ("part", "param", "rule"),
    [
        ({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, "[1].image_url", "data: URL"),
        (
            {"type": "image_url", "image_url": {"url": make_data_url(b"no picture")}},
            "[1].image_url",
            "PNG, JPEG, GIF or WebP",
        ),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,%%"}}, "[1].image_url", "valid base64"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "ogg"}}, "[1].input_audio", "wav or mp3"),
        ({"type": "file", "file": {"file_id": "file-1"}}, "[1].file_id", "POST /v1/files"),
        ({"type": "file", "file": {"file_url": "https://example.org/a.pdf"}}, "[1]", "no address is fetched"),
        ({"type": "video_url", "video_url": {"url": "x"}}, "[1].type", "'video_url'"),
    ],
    ids=["an address", "no picture", "no base64", "another sound", "an id of others", "a file's address", "a video"],
)
async def test_an_unreadable_part_is_refused_by_name_and_rule(tmp_path: Path, part: Any, param: str, rule: str) -> None:
    messages: Any = [make_user_message(make_text("this"), part)]
    async with client(tmp_path, Script(query=answering())) as (api, facade):
        with pytest.raises(openai.BadRequestError) as caught:
            await api.chat.completions.create(model="helper", messages=messages)
        assert not facade.tools.uploaded
    assert caught.value.param == f"messages[0].content{param}"
    assert rule in caught.value.message


async def test_a_refused_upload_is_reported_for_the_callers_part(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=answering())) as (api, facade):
        facade.tools.refused = InvalidRequest.of("file", "is larger than 10 MiB")
        with pytest.raises(openai.BadRequestError) as caught:
            await api.chat.completions.create(model="helper", messages=[make_user_message(picture())])  # pyright: ignore[reportArgumentType] - plain dictionaries
    assert (caught.value.param, "is larger than 10 MiB" in caught.value.message) == ("messages[0].content[0]", True)


async def test_too_many_attachments_are_refused(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=answering())) as (api, facade):
        with pytest.raises(openai.BadRequestError) as caught:
            await api.chat.completions.create(
                model="helper",
                messages=[make_user_message(*[picture()] * (ATTACHMENTS_MAX + 1))],  # pyright: ignore[reportArgumentType] - plain dictionaries
            )
        assert not facade.tools.uploaded
    assert caught.value.param == f"messages[0].content[{ATTACHMENTS_MAX}]"


async def test_a_file_uploaded_in_advance_is_referenced_by_its_id(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=answering())) as (api, facade):
        stored = await api.files.create(file=("报告 1.pdf", b"%PDF-1"), purpose="user_data")
        again = await api.files.retrieve(stored.id)
        parts: Any = [{"type": "input_text", "text": "Sum it up"}, {"type": "input_file", "file_id": stored.id}]
        await api.responses.create(model="helper", input=[{"role": "user", "content": parts}])
        messages: Any = [make_user_message(make_text("Sum it up"), {"type": "file", "file": {"file_id": stored.id}})]
        await api.chat.completions.create(model="helper", messages=messages)
        queries, uploaded = facade.script.requests, facade.tools.uploaded
    assert (stored.filename, stored.bytes, stored.purpose) == ("报告 1.pdf", 6, "user_data")
    assert again.id == stored.id
    assert [(start.name, data) for start, data in uploaded] == [("报告 1.pdf", b"%PDF-1")] * 3
    assert [query.message for query in queries] == ["Sum it up\n[报告 1.pdf]"] * 2
    assert [query.references[0].name for query in queries] == ["报告 1.pdf"] * 2


async def test_a_missing_file_is_reported_for_the_callers_part(tmp_path: Path) -> None:
    async with client(tmp_path, Script(query=answering())) as (api, facade):
        stored = await api.files.create(file=("a.txt", b"hello"), purpose="user_data")
        facade.tools.uploaded.clear()
        messages: Any = [make_user_message(make_text("this"), {"type": "file", "file": {"file_id": stored.id}})]
        with pytest.raises(openai.BadRequestError) as caught:
            await api.chat.completions.create(model="helper", messages=messages)
        with pytest.raises(openai.NotFoundError):
            await api.files.retrieve(stored.id)
        with pytest.raises(openai.NotFoundError):
            await api.files.retrieve("file-nobody")
    assert caught.value.param == "messages[0].content[1]"


@pytest.mark.parametrize("path", ["/v1/files", "/api/upload"])
async def test_a_file_name_that_is_not_utf_8_gets_status_400(tmp_path: Path, path: str) -> None:
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="\xff.txt"\r\n\r\nhello\r\n--b--\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    async with suite(tmp_path, Script(query=answering())) as facade:
        async with facade.http.post(path, data=body, headers=headers) as response:
            assert (response.status, "UTF-8" in await response.text()) == (400, True)
        assert not facade.tools.uploaded
