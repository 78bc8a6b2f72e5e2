"""ReadFile and ListFiles over a real server, and the errors for what the file system refuses."""

import asyncio
import ctypes
import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, Interrupted, InvalidRequest, NotFound, OutOfRange, Overloaded, QuotaExceeded
from headrace.streams import reading, rpc_errors
from headrace.v1 import tools_pb2
from services.tools.sandbox.supervisor.kernel import open_beneath
from services.tools.transfer.downloads import FILES_MAX, PIECE_BYTES
from services.tools.workspace.file_work import file_errors
from services.tools.workspace.quota import WorkspaceFull
from services.tools.workspace.workspace import Workspaces
from tests.support.tools.suite import CHAT, Serve
from tests.support.tools.uploading import read, upload

DATA = bytes(range(256)) * 1024
NOBODY = "00000000-0000-4000-8000-00000000000f"


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [
        (0, 0, DATA),
        (0, 1, DATA[:1]),
        (5, 100_000, DATA[5:100_005]),
        (len(DATA) - 1, 0, DATA[-1:]),
        (len(DATA) - 10, 1000, DATA[-10:]),
        (-7, 0, DATA[-7:]),
        (-7, 3, DATA[-7:-4]),
        (-10_000_000, 0, DATA),
    ],
)
async def test_a_range_is_read_in_pieces(serve: Serve, offset: int, length: int, expected: bytes) -> None:
    async with serve() as suite:
        await upload(suite.stub, DATA, "a.bin")
        request = tools_pb2.ReadFileRequest(chat_id=CHAT, path="uploads/a.bin", offset=offset, length=length)
        async with reading(suite.stub.ReadFile(request)) as replies:
            received = [reply async for reply in replies]
    assert b"".join(reply.data for reply in received) == expected
    assert {len(reply.data) for reply in received[:-1]} <= {PIECE_BYTES}
    assert (received[0].info.size_bytes, received[0].info.path) == (len(DATA), "uploads/a.bin")


async def test_the_version_changes_with_the_content(serve: Serve) -> None:
    async with serve() as suite:
        await upload(suite.stub, b"one", "a")
        first, again = [(await read(suite.stub, "uploads/a"))[0].version for _ in range(2)]
        file = suite.workspace / "uploads/a"
        status = file.stat()
        file.write_bytes(b"two")
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert (await read(suite.stub, "uploads/a"))[0].version != first == again


async def test_an_empty_file_is_one_piece(serve: Serve) -> None:
    async with serve() as suite:
        await upload(suite.stub, b"", "a")
        info, content = await read(suite.stub, "uploads/a")
    assert (info.size_bytes, content) == (0, b"")


@pytest.mark.parametrize(
    ("path", "offset", "length", "error"),
    [
        ("uploads/none", 0, 0, NotFound),
        ("uploads/a/b", 0, 0, NotFound),
        ("uploads/%61", 0, 0, NotFound),
        ("%2e%2e/%2e%2e/secret", 0, 0, NotFound),
        ("..%2f..%2fsecret", 0, 0, NotFound),
        ("uploads", 0, 0, InvalidRequest),
        (".", 0, 0, InvalidRequest),
        ("uploads/pipe", 0, 0, InvalidRequest),
        ("uploads/socket", 0, 0, InvalidRequest),
        ("../../secret", 0, 0, InvalidRequest),
        ("uploads/../../../secret", 0, 0, InvalidRequest),
        ("/etc/passwd", 0, 0, InvalidRequest),
        ("/proc/self/root/etc/passwd", 0, 0, InvalidRequest),
        ("uploads/root/etc/passwd", 0, 0, InvalidRequest),
        ("uploads/secret", 0, 0, InvalidRequest),
        ("uploads/loop", 0, 0, InvalidRequest),
        ("uploads/a\0b", 0, 0, InvalidRequest),
        ("x" * 300, 0, 0, InvalidRequest),
        ("x/" * 2040, 0, 0, NotFound),
        ("uploads/a", 3, 0, OutOfRange),
        ("uploads/a", 2**60, 0, OutOfRange),
        ("uploads/a", 0, -1, InvalidRequest),
    ],
)
async def test_an_unreadable_path_gets_the_matching_error(
    serve: Serve, tmp_path: Path, path: str, offset: int, length: int, error: type[HeadraceError]
) -> None:
    async with serve() as suite:
        await upload(suite.stub, b"abc", "a")
        uploads = suite.workspace / "uploads"
        (tmp_path / "secret").write_text("secret")
        (uploads / "secret").symlink_to(tmp_path / "secret")
        (uploads / "root").symlink_to("/proc/self/root")
        (uploads / "loop").symlink_to("loop")
        os.mkfifo(uploads / "pipe")
        os.mknod(uploads / "socket", stat.S_IFSOCK | 0o600)
        with pytest.raises(error):
            await read(suite.stub, path, offset, length)


async def test_an_unknown_chat_is_not_found_and_not_created(serve: Serve) -> None:
    async with serve() as suite:
        with pytest.raises(NotFound):
            await read(suite.stub, "uploads/a", chat_id=NOBODY)
        with pytest.raises(NotFound), rpc_errors():
            await suite.stub.ListFiles(tools_pb2.ListFilesRequest(chat_id=NOBODY))
        assert not (suite.workspace.parent / NOBODY).exists()


async def test_a_file_truncated_while_read_is_interrupted(serve: Serve) -> None:
    async with serve() as suite:
        await upload(suite.stub, b"\0" * 8 * 1024 * 1024, "a")
        request = tools_pb2.ReadFileRequest(chat_id=CHAT, path="uploads/a")
        async with reading(suite.stub.ReadFile(request)) as replies:
            await anext(replies)
            os.truncate(suite.workspace / "uploads/a", 1000)
            with pytest.raises(Interrupted), rpc_errors():
                [reply async for reply in replies]


async def test_a_file_replaced_while_read_is_read_as_it_was(serve: Serve) -> None:
    async with serve() as suite:
        await upload(suite.stub, b"\0" * 8 * 1024 * 1024, "a")
        async with reading(suite.stub.ReadFile(tools_pb2.ReadFileRequest(chat_id=CHAT, path="uploads/a"))) as replies:
            received = len((await anext(replies)).data)
            await suite.execute("write_file", '{"path": "uploads/a", "content": "new"}')
            async for reply in replies:
                assert not any(reply.data)
                received += len(reply.data)
    assert received == 8 * 1024 * 1024


async def test_cancelling_the_call_closes_the_file(serve: Serve) -> None:
    def opened() -> int:
        return sum(str(fd.resolve()).endswith("/uploads/a") for fd in Path("/proc/self/fd").iterdir())

    async with serve() as suite:
        await upload(suite.stub, b"\0" * 8 * 1024 * 1024, "a")
        async with reading(suite.stub.ReadFile(tools_pb2.ReadFileRequest(chat_id=CHAT, path="uploads/a"))) as replies:
            await anext(replies)
            assert opened() == 1
        while opened():
            await asyncio.sleep(0.01)


async def test_files_are_listed_with_their_types(serve: Serve) -> None:
    async with serve() as suite:
        await upload(suite.stub, b"%PDF-1.4", "b")
        await upload(suite.stub, b"1,2", "a.csv")
        (suite.workspace / "outputs/link").symlink_to("../uploads/b")
        (suite.workspace / "outputs" / os.fsdecode(b"\xff")).write_text("x")
        listed = await suite.stub.ListFiles(tools_pb2.ListFilesRequest(chat_id=CHAT))
        some = await suite.stub.ListFiles(tools_pb2.ListFilesRequest(chat_id=CHAT, path="uploads"))
        with pytest.raises(InvalidRequest), rpc_errors():
            await suite.stub.ListFiles(tools_pb2.ListFilesRequest(chat_id=CHAT, path=".."))
    facts = [(file.path, file.size_bytes, file.mime_type) for file in listed.files]
    assert facts == [
        ("outputs/?", 1, "text/plain"),
        ("uploads/a.csv", 3, "text/csv"),
        ("uploads/b", 8, "application/pdf"),
    ]
    assert all(file.modified_at > 1_700_000_000_000 for file in listed.files)
    assert (len(some.files), some.has_more) == (2, False)


async def test_a_file_list_is_bounded_and_reports_more(serve: Serve) -> None:
    async with serve() as suite:
        folder = suite.workspace / "outputs"
        folder.mkdir(parents=True)
        for number in range(FILES_MAX + 1):
            (folder / str(number)).touch()
        listed = await suite.stub.ListFiles(tools_pb2.ListFilesRequest(chat_id=CHAT))
    assert (len(listed.files), listed.has_more) == (FILES_MAX, True)


def test_a_link_swapped_in_never_leads_outside(tmp_path: Path) -> None:
    """A folder and a link to the outside are swapped continuously while files are read, written and listed."""
    workspace = Workspaces(tmp_path / "workspaces").open_workspace(CHAT)
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "a").write_text("secret")
    folder, link = workspace.folder / "x", workspace.folder / "y"
    folder.mkdir()
    (folder / "a").write_text("mine")
    link.symlink_to(secret)
    stop = threading.Event()
    exchange, at_cwd = 2, -100  # RENAME_EXCHANGE, AT_FDCWD
    renameat2 = ctypes.CDLL(None).renameat2

    def swap() -> None:
        while not stop.is_set():
            assert renameat2(at_cwd, bytes(folder), at_cwd, bytes(link), exchange) == 0

    swapping = threading.Thread(target=swap)
    swapping.start()
    tries = own_reads = refused = 0
    try:
        while tries < 1500 or not own_reads:
            tries += 1
            try:
                with workspace.open_file("x/a") as fd:
                    assert os.read(fd, 10) != b"secret"
                    own_reads += 1
                workspace.write_file(f"x/new{tries % 3}", b"new")
                assert all(file.size_bytes != 6 for file in workspace.list_files("", 100))
                assert all(file.size_bytes != 6 for file in workspace.list_files("x", 100))
            except (OSError, ValueError):
                refused += 1
    finally:
        stop.set()
        swapping.join()
    assert [path.name for path in secret.iterdir()] == ["a"]
    assert (secret / "a").read_text() == "secret"
    assert own_reads
    assert refused


def test_the_kernel_refuses_paths_that_leave_the_folder(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/")
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        for path in ("out/etc/passwd", "../x", "/etc/passwd"):
            with pytest.raises(OSError, match="cross-device"):
                open_beneath(fd, path, os.O_RDONLY)
        with pytest.raises(OSError, match="symbolic links"):
            open_beneath(fd, "out", os.O_RDONLY, follow_links=False)
    finally:
        os.close(fd)


TABLE: list[tuple[Exception, type[HeadraceError]]] = [
    (WorkspaceFull("full"), QuotaExceeded),
    (OSError(errno.ENOENT, ""), NotFound),
    (OSError(errno.ENOTDIR, ""), NotFound),
    (OSError(errno.EXDEV, ""), InvalidRequest),
    (OSError(errno.ELOOP, ""), InvalidRequest),
    (OSError(errno.ENAMETOOLONG, ""), InvalidRequest),
    (OSError(errno.ENXIO, ""), InvalidRequest),
    (OSError(errno.EACCES, ""), InvalidRequest),
    (OSError(errno.ENOSPC, ""), Overloaded),
    (OSError(errno.EDQUOT, ""), Overloaded),
    (OSError(errno.EIO, ""), Overloaded),
    (OSError(errno.EMFILE, ""), Overloaded),
    (OSError(errno.EROFS, ""), Overloaded),
    (ValueError("is a folder"), InvalidRequest),
]


@pytest.mark.parametrize(("raised", "expected"), TABLE)
def test_file_errors_a_caller_can_act_on_are_translated(raised: Exception, expected: type[HeadraceError]) -> None:
    with pytest.raises(expected), file_errors("path"):
        raise raised


def test_file_errors_caused_by_us_are_not_translated() -> None:
    with pytest.raises(OSError, match="closed"), file_errors("path"):
        raise OSError(errno.EBADF, "closed")
