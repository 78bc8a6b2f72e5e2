"""UploadFile over a real server: stored files, refusals, and leftovers."""

import asyncio
import hashlib
import io
import json
import os
import struct
import time
import zipfile
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from headrace.errors import InvalidRequest, NotFound, Overloaded, QuotaExceeded, StreamStalled
from headrace.streams import rpc_errors
from headrace.v1 import tools_pb2
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.rpc.field_rules import is_uuid
from services.runtime.tokens.image_size import image_size
from services.tools.transfer.incoming import LEFT_S
from services.tools.transfer.uploads import LIMITS, MIB, UPLOADS_MAX, Uploads
from services.tools.workspace.workspace import Workspaces
from tests.support.tools.suite import CHAT, Serve
from tests.support.tools.uploading import picture, pieces, read, start, upload


def make_office_file(folder: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("docProps/app.xml", "x" * 20_000)
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr(f"{folder}/document.xml", "<x/>")
    return file.getvalue()


def list_leftovers(suite: Any) -> list[Path]:
    """List the temporary files that uploads have left."""
    return list((suite.workspace.parent / ".incoming").iterdir())


async def test_an_upload_becomes_a_file_and_a_reference_that_reads_it(serve: Serve) -> None:
    data = "名,数\n水,1\n".encode() * 50_000
    async with serve() as suite:
        reply = await upload(suite.stub, data, "数据 1.csv")
        info, content = await read(suite.stub, "uploads/数据 1.csv")
        assert list_leftovers(suite) == []
    reference = reply.reference
    assert (reply.chat_id, content) == (CHAT, data)
    assert (reference.type, reference.name, reference.mime_type) == ("text", "数据 1.csv", "text/csv")
    assert (reference.size_bytes, reference.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert json.loads(reference.meta) == {"path": "uploads/数据 1.csv"}
    assert reference.url == f"/api/resource?chatId={CHAT}&path=uploads%2F%E6%95%B0%E6%8D%AE+1.csv"
    assert (info.size_bytes, info.mime_type) == (len(data), "text/csv")


async def test_an_upload_without_a_chat_creates_one_and_its_start_may_come_last(serve: Serve) -> None:
    async def requests() -> AsyncIterator[tools_pb2.UploadFileRequest]:
        for piece in pieces(b"text"):
            yield piece
        yield start("a.txt", chat_id=None)

    async with serve() as suite:
        reply = await suite.stub.UploadFile(requests())
        _, content = await read(suite.stub, "uploads/a.txt", chat_id=reply.chat_id)
    assert is_uuid(reply.chat_id)
    assert reply.chat_id != CHAT
    assert content == b"text"


async def test_a_taken_name_is_numbered_and_a_repeated_request_is_not(serve: Serve) -> None:
    async with serve() as suite:
        names = [
            (await upload(suite.stub, data, "a.b.txt", request_id=request_id)).reference.name
            for data, request_id in ((b"1", "q-1"), (b"1", "q-1"), (b"2", "q-2"), (b"1", None), (b"1", "q-1"))
        ]
        ids = {(await upload(suite.stub, b"1", name)).reference.id for name in ("x", "x", "y")}
    assert names == ["a.b.txt", "a.b.txt", "a.b (2).txt", "a.b (3).txt", "a.b.txt"]
    assert len(ids) == 3


async def test_concurrent_uploads_of_one_name_are_all_stored(serve: Serve) -> None:
    async with serve() as suite:
        replies = await asyncio.gather(*(upload(suite.stub, b"%d" % n, "a.txt") for n in range(UPLOADS_MAX)))
        contents = {(await read(suite.stub, f"uploads/{reply.reference.name}"))[1] for reply in replies}
    assert contents == {b"%d" % n for n in range(UPLOADS_MAX)}


TYPES = [
    (picture("PNG", 3, 2), "x.txt", "image", "image/png"),
    (picture("JPEG", 3, 2), "x", "image", "image/jpeg"),
    (picture("GIF", 3, 2), "x.pdf", "image", "image/gif"),
    (picture("WEBP", 3, 2), "x.png", "image", "image/webp"),
    (b"%PDF-1.7\n%\xe2\xe3", "x.txt", "pdf", "application/pdf"),
    (
        make_office_file("word"),
        "x.zip",
        "office",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ),
    (make_office_file("xl"), "x.docx", "office", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    (make_office_file("other"), "x.docx", "other", "application/zip"),
    (b"print(1)\n", "x.py", "text", "text/plain"),
    (b"BM is how this text begins", "x.bmp", "text", "text/plain"),
    ("水".encode() * 30_000, "x.md", "text", "text/markdown"),
    (b"<script>alert(1)</script>", "x.html", "text", "text/html"),
    (b"<svg onload='alert(1)'/>", "x.svg", "text", "image/svg+xml"),
    (b"", "empty.json", "text", "application/json"),
    ("Name;Stadt\r\nMüller;Köln\r\n".encode("cp1252"), "x.csv", "text", "application/octet-stream"),
    ("名前,都市\n田中,東京\n".encode("shift_jis"), "x.csv", "text", "application/octet-stream"),
    ("Name;Stadt\nMüller;Köln\n".encode("utf-16"), "x.txt", "text", "application/octet-stream"),
    (b"ends as DOS ended texts\r\n\x1a", "x.txt", "text", "text/plain"),
    (b"text\0", "x.txt", "other", "application/octet-stream"),
    (b"\x7fELF\x02\x01", "x.png", "other", "application/octet-stream"),
    (b"PK\x03\x04 and no archive", "x.xlsx", "other", "application/zip"),
    (b"ID3\x03\0\0\0", "x.doc", "audio", "audio/mpeg"),
    (b"\xff\xfb\x90\x64\0", "x", "audio", "audio/mpeg"),
    (b"RIFF\x24\0\0\0WAVEfmt ", "x.mp3", "audio", "audio/wav"),
    (b"OggS\0\x02", "x.wav", "audio", "audio/ogg"),
]


@pytest.mark.parametrize(("data", "name", "kind", "mime_type"), TYPES)
async def test_the_type_is_detected_from_the_content(
    serve: Serve, data: bytes, name: str, kind: str, mime_type: str
) -> None:
    async with serve() as suite:
        reference = (await upload(suite.stub, data, name)).reference
    assert (reference.type, reference.mime_type) == (kind, mime_type)


@pytest.mark.parametrize(
    ("beginning", "kind"),
    [
        (b"text ", "text"),
        (b"%PDF-1.7 ", "pdf"),
        (b"\0", "other"),
        (picture("PNG", 9, 9), "image"),
        (b"PK\x03\x04", "other"),
    ],
)
async def test_a_file_over_the_limit_of_its_type_is_refused_and_gone(serve: Serve, beginning: bytes, kind: Any) -> None:
    limit = LIMITS[kind]
    async with serve() as suite:
        if kind != "image":
            await upload(suite.stub, beginning + b" " * (limit - len(beginning)))
        with pytest.raises(InvalidRequest, match=rf"file: is larger than {limit // MIB} MiB.*\({kind}\)"):
            await upload(suite.stub, beginning + b" " * (limit - len(beginning) + 1), "over")
        assert list_leftovers(suite) == []
        assert not (suite.workspace / "uploads/over").exists()


BAD_NAMES = [
    "",
    " ",
    ".",
    "..",
    "...",
    "../a",
    "a/b",
    "/etc/passwd",
    "a\\b",
    "C:\\a",
    ".hidden",
    "\u200e.hidden",
    "\u2066\u2069",
    "\u202e../a",
    "a" * 1025,
]


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_a_bad_name_is_refused_by_its_rule(serve: Serve, name: str) -> None:
    async with serve() as suite:
        with pytest.raises(InvalidRequest, match="name: "):
            await upload(suite.stub, b"x", name)
        assert list_leftovers(suite) == []


@pytest.mark.parametrize(
    "name",
    ["a", "报告 (终).docx", "a%2e%2e%2fb", "~root", "-rf", "$(id)", "👩‍💻.txt", "水" * 85, "con.txt", "a.tar.gz "],
)
async def test_odd_names_are_stored_as_plain_names(serve: Serve, name: str) -> None:
    async with serve() as suite:
        first, second = [(await upload(suite.stub, b"x", name)).reference.name for _ in range(2)]
        files = {path.name for path in (suite.workspace / "uploads").iterdir()}
    assert first == name
    assert files == {first, second}
    assert len(second.encode()) <= 255
    assert " (2)" in second


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("Cafe\u0301", "Caf\u00e9"),
        ("Scherm\u00adafbeelding 14.49.png", "Schermafbeelding 14.49.png"),
        ("\u200eIMG.jpg", "IMG.jpg"),
        ("\ufeffa", "a"),
        ("a\u202etxt.exe", "atxt.exe"),
        ("Internet of\nThings.pdf", "Internet of Things.pdf"),
        ("a\0b\x1b[2Jc\u2028d", "a b [2Jc d"),
        ("水" * 100 + ".docx", "水" * 83 + ".docx"),
        ("a" * 300, "a" * 255),
    ],
)
async def test_a_name_is_stored_composed_visible_and_short_enough(serve: Serve, name: str, stored: str) -> None:
    async with serve() as suite:
        assert (await upload(suite.stub, b"x", name)).reference.name == stored


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
async def test_a_large_image_is_scaled_down(serve: Serve, kind: str) -> None:
    async with serve() as suite:
        reference = (await upload(suite.stub, picture(kind, 4000, 1000), "a")).reference
        _, content = await read(suite.stub, "uploads/a")
    assert image_size(content) == (2000, 500)
    assert Image.open(io.BytesIO(content)).format == kind
    assert (reference.size_bytes, reference.sha256) == (len(content), hashlib.sha256(content).hexdigest())


async def test_a_large_16_bit_grey_image_keeps_its_greys(serve: Serve) -> None:
    row = b"".join(bytes([0, x * 256 // 3000]) for x in range(3000))
    picture = Image.frombytes("I;16", (3000, 2), row * 2)
    file = io.BytesIO()
    picture.save(file, format="PNG")
    async with serve() as suite:
        await upload(suite.stub, file.getvalue(), "x.png")
        with Image.open(suite.workspace / "uploads" / "x.png") as stored:
            greys = [stored.convert("L").getpixel((x, 0)) for x in (5, 1074, 1953)]
    assert greys == pytest.approx([0, 137, 250], abs=8)


async def test_a_small_image_is_unchanged_and_a_rotated_one_is_turned_upright(serve: Serve) -> None:
    turned = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # taken with the camera on its side
    Image.new("RGB", (3000, 1500)).save(turned, format="JPEG", exif=exif)
    small = picture("PNG", 2000, 10)
    async with serve() as suite:
        await upload(suite.stub, small, "small")
        await upload(suite.stub, turned.getvalue(), "turned")
        assert (await read(suite.stub, "uploads/small"))[1] == small
        assert image_size((await read(suite.stub, "uploads/turned"))[1]) == (1000, 2000)


async def test_an_image_from_a_model_is_stored_unchanged_in_outputs(serve: Serve) -> None:
    image = picture("PNG", 4096, 10)
    async with serve() as suite:
        names = [await store_output(suite.stub, image), await store_output(suite.stub, image)]
        assert names == ["outputs/image.png", "outputs/image (2).png"]
        assert (await read(suite.stub, names[1]))[1] == image


@pytest.mark.parametrize("folder", ["skills", "..", "outputs/deeper"])
async def test_only_outputs_is_accepted_as_folder(serve: Serve, folder: str) -> None:
    async with serve() as suite:
        with pytest.raises(InvalidRequest):
            await store_output(suite.stub, b"x", folder)


async def store_output(stub: Any, data: bytes, folder: str = "outputs") -> str:
    begin = tools_pb2.UploadStart(name="image.png", chat_id=CHAT, size_bytes=len(data), folder=folder)

    async def requests() -> AsyncIterator[tools_pb2.UploadFileRequest]:
        yield tools_pb2.UploadFileRequest(start=begin)
        for piece in pieces(data):
            yield piece

    with rpc_errors():
        reply = await stub.UploadFile(requests())
    return json.loads(reply.reference.meta)["path"]


def make_bomb(width: int, height: int) -> bytes:
    """Make a PNG that declares these dimensions but holds almost no data."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    data = zlib.compress(b"\0" * 1_000_000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (make_bomb(60_000, 60_000), "more than 64 megapixels"),
        (make_bomb(2_000_000_000, 2), "more than 64 megapixels"),
        (make_bomb(5000, 5000), "damaged"),
        (picture("JPEG", 3000, 3000)[:2000], "damaged"),
    ],
)
async def test_decompression_bombs_and_damaged_images_are_refused(serve: Serve, data: bytes, problem: str) -> None:
    async with serve() as suite:
        with pytest.raises(InvalidRequest, match=problem):
            await upload(suite.stub, data)
        assert list_leftovers(suite) == []
        assert not suite.workspace.exists()


async def test_a_stream_shorter_than_declared_is_refused(serve: Serve) -> None:
    named = tools_pb2.UploadFileRequest(start=tools_pb2.UploadStart(name="a", chat_id=CHAT, size_bytes=5))
    async with serve() as suite:
        with pytest.raises(InvalidRequest, match="4 bytes came"), rpc_errors():
            await suite.stub.UploadFile(iter([named, *pieces(b"1234")]))
        await suite.stub.UploadFile(iter([named, *pieces(b"12345")]))
        assert list_leftovers(suite) == []


@pytest.mark.parametrize("data", [b"text", b"x" * 4 * MIB])
async def test_clients_disconnecting_during_an_upload_leave_no_file(serve: Serve, data: bytes) -> None:
    async with serve() as suite:
        calls = [suite.stub.UploadFile() for _ in range(UPLOADS_MAX)]
        for number, call in enumerate(calls):
            await call.write(start(f"{number}.txt"))
            for piece in pieces(data):
                await call.write(piece)
        while len(list_leftovers(suite)) < UPLOADS_MAX:
            await asyncio.sleep(0.01)
        for call in calls:
            call.cancel()
        while list_leftovers(suite):
            await asyncio.sleep(0.01)
        assert not suite.workspace.exists()


async def test_uploads_above_the_limit_are_refused_until_others_end(serve: Serve) -> None:
    async with serve() as suite:
        calls = [suite.stub.UploadFile() for _ in range(UPLOADS_MAX)]
        for call in calls:
            await call.write(start("a.txt"))
        while len(list_leftovers(suite)) < UPLOADS_MAX:
            await asyncio.sleep(0.01)
        with pytest.raises(Overloaded, match="16 uploads"):
            await upload(suite.stub, b"x")
        for call in calls:
            call.cancel()
        while list_leftovers(suite):
            await asyncio.sleep(0.01)
        await upload(suite.stub, b"x")


async def test_a_stalled_upload_times_out_and_frees_its_place(tmp_path: Path) -> None:
    async def silent() -> AsyncIterator[tools_pb2.UploadFileRequest]:
        yield start("a")
        await asyncio.Event().wait()

    async with asyncio.timeout(50):
        with pytest.raises(StreamStalled):
            await Uploads(Workspaces(tmp_path), upload_s=0.05).receive_file(silent())
    assert list((tmp_path / ".incoming").iterdir()) == []


async def test_a_tenant_cannot_use_all_upload_places(tmp_path: Path) -> None:
    uploads, has_begun = Uploads(Workspaces(tmp_path), is_shared=True), asyncio.Event()

    async def silent() -> AsyncIterator[tools_pb2.UploadFileRequest]:
        yield tools_pb2.UploadFileRequest(start=tools_pb2.UploadStart(name="a"))
        await has_begun.wait()

    async def nothing() -> AsyncIterator[tools_pb2.UploadFileRequest]:
        return
        yield

    async def send(tenant: str) -> tools_pb2.UploadFileResponse:
        with acting_as(Identity(tenant, "ada")):
            return await uploads.receive_file(silent())

    async with asyncio.timeout(50):
        uploading = [asyncio.create_task(send("acme")) for _ in range(UPLOADS_MAX // 2)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="8 uploads"), acting_as(Identity("acme", "bob")):
            await uploads.receive_file(nothing())
        uploading.append(asyncio.create_task(send("bank")))
        await asyncio.sleep(0)
        has_begun.set()
        assert len(await asyncio.gather(*uploading)) == UPLOADS_MAX // 2 + 1


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([], "start"),
        (pieces(b"x"), "start"),
        ([start("a"), start("b")], "start"),
        ([tools_pb2.UploadFileRequest()], "part"),
        ([start("a", chat_id="../../x")], "start.chatId"),
        ([start("a"), tools_pb2.UploadFileRequest(data=bytes(MIB + 1))], "data"),
    ],
)
async def test_a_stream_that_breaks_the_contract_is_refused(serve: Serve, messages: list[Any], field: str) -> None:
    async with serve() as suite:
        with pytest.raises(InvalidRequest) as caught, rpc_errors():
            await suite.stub.UploadFile(iter(messages))
        assert caught.value.metadata["field"] == field
        assert list_leftovers(suite) == []


async def test_a_full_workspace_refuses_uploads_and_writes_with_its_usage(serve: Serve) -> None:
    async with serve(workspace_bytes_max=100_000) as suite:
        await upload(suite.stub, b"x" * 60_000, "a")
        with pytest.raises(QuotaExceeded, match=r"full: [0-9]{5} of 100000 bytes are used and 60000 more are needed"):
            await upload(suite.stub, b"x" * 60_000, "b")
        arguments = json.dumps({"path": "outputs/b", "content": "x" * 60_000})
        _, outcome = await suite.execute("write_file", arguments)
        assert list_leftovers(suite) == []
    assert not outcome.ok
    assert "the workspace is full" in outcome.result
    assert "delete files" in outcome.result


async def test_leftover_uploads_of_a_killed_service_are_removed_at_startup(tmp_path: Path) -> None:
    folder = Workspaces(tmp_path).make_incoming_folder()
    for name, age_s in (("old", LEFT_S + 60), ("new", 60)):
        (folder / name).write_text("half")
        modified_s = time.time() - age_s
        os.utime(folder / name, (modified_s, modified_s))
    skill = folder / "skill-0123"
    (skill / "made").mkdir(parents=True)
    (skill / "made/a").touch(0o444)
    os.utime(skill, (0, 0))
    Uploads(Workspaces(tmp_path))
    assert [path.name for path in folder.iterdir()] == ["new"]


async def test_an_uploads_folder_that_is_a_link_is_not_followed(serve: Serve, tmp_path: Path) -> None:
    async with serve() as suite:
        suite.workspace.mkdir(parents=True)
        outside = tmp_path / "outside"
        outside.mkdir()
        (suite.workspace / "uploads").symlink_to(outside)
        with pytest.raises(InvalidRequest, match="leads out of the workspace"):
            await upload(suite.stub, b"x")
        (suite.workspace / "uploads").unlink()
        (suite.workspace / "uploads").write_text("a file")
        with pytest.raises(NotFound, match="no such file or folder"):
            await upload(suite.stub, b"x")
        assert list(outside.iterdir()) == []
        assert list_leftovers(suite) == []
