"""Backups in a bucket: a backup is returned byte for byte, and an interrupted or changed one is refused."""

import os
from pathlib import Path

import pytest

from services.memory.storage.s3.backups import BackupProblem, delete_older, get_backup, list_backups, put_backup
from tests.support.memory.admin_cli import run_program
from tests.support.s3_store import Place, needs_s3

pytestmark = needs_s3

CONTENT = bytes(range(256)) * 40
PIECE_BYTES = 1000


async def put(place: Place, folder: Path, name: str, content: bytes = CONTENT) -> None:
    (folder / name).write_bytes(content)
    async with place.open() as bucket:
        assert (await put_backup(bucket, folder / name, PIECE_BYTES)).size_bytes == len(content)


async def test_a_backup_is_returned_byte_for_byte(place: Place, tmp_path: Path) -> None:
    for name, content in (("many.tar", CONTENT), ("whole.tar", b"x" * PIECE_BYTES), ("none.tar", b"")):
        await put(place, tmp_path, name, content)
        async with place.open() as bucket:
            assert (await get_backup(bucket, name, tmp_path / "back")).size_bytes == len(content)
            with pytest.raises(BackupProblem, match="back is there already"):
                await get_backup(bucket, name, tmp_path / "back")
            with pytest.raises(BackupProblem, match=f"{name} is there already"):
                await put_backup(bucket, tmp_path / name)
        assert (tmp_path / "back").read_bytes() == content
        assert (tmp_path / "back").stat().st_mode & 0o077 == 0
        (tmp_path / "back").unlink()
    assert sorted(await place.read_all())[:2] == ["many.tar/000000", "many.tar/000001"]


@pytest.mark.parametrize("harm", ["changed", "lost", "swapped", "not complete"])
async def test_a_damaged_backup_is_not_written_to_disk(place: Place, tmp_path: Path, harm: str) -> None:
    await put(place, tmp_path, "a.tar")
    async with place.open() as bucket:
        second = await bucket.get("a.tar/000001")
        assert second is not None
        match harm:
            case "changed":
                await bucket.put("a.tar/000001", second[0][:-1] + b"\0")
            case "lost":
                await bucket.delete("a.tar/000001")
            case "swapped":
                await bucket.put("a.tar/000002", second[0])
            case _:
                await bucket.delete("a.tar/complete")
        with pytest.raises(BackupProblem, match=r"piece [12] differs from what was uploaded|or is incomplete"):
            await get_backup(bucket, "a.tar", tmp_path / "back")
    assert os.listdir(tmp_path) == ["a.tar"]


async def test_the_oldest_backups_are_deleted_together_with_earlier_incomplete_ones(
    place: Place, tmp_path: Path
) -> None:
    for day in range(1, 6):
        await put(place, tmp_path, f"2026-01-0{day}.tar")
    async with place.open() as bucket:
        for marker in ("2026-01-03.tar/complete", "2026-01-05.tar/complete"):
            await bucket.delete(marker)
        assert await delete_older(bucket, 2) == ["2026-01-01.tar", "2026-01-03.tar"]
        remaining = [(backup.name, backup.contents is not None) for backup in await list_backups(bucket)]
        assert remaining == [("2026-01-02.tar", True), ("2026-01-04.tar", True), ("2026-01-05.tar", False)]
        # A new upload replaces an incomplete one.
        await put_backup(bucket, tmp_path / "2026-01-05.tar")
        await get_backup(bucket, "2026-01-05.tar", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == CONTENT


async def test_a_backup_with_damaged_contents_does_not_hide_others(place: Place, tmp_path: Path) -> None:
    for name in ("1.tar", "2.tar", "3.tar"):
        await put(place, tmp_path, name)
    async with place.open() as bucket:
        await bucket.put("2.tar/complete", b'{"pieces": [')
        with pytest.raises(BackupProblem, match=r"2\.tar/complete differs from what was uploaded"):
            await get_backup(bucket, "2.tar", tmp_path / "back")
        assert [(backup.name, backup.contents is not None) for backup in await list_backups(bucket)] == [
            ("1.tar", True),
            ("2.tar", False),
            ("3.tar", True),
        ]
        assert await delete_older(bucket, 2) == ["2.tar"], "it is none of those that are kept"


async def run(place: Place, *arguments: str, **env: str) -> tuple[int | None, str]:
    variables = place.variables | {"HEADRACE_DATABASE_URL": "postgresql://elsewhere/"} | env
    return await run_program("headrace.cli", "backups", *arguments, env=os.environ | variables)


async def test_the_command_reports_what_it_did_and_why_it_failed(place: Place, tmp_path: Path) -> None:
    for day in (1, 2):
        (tmp_path / f"{day}.tar").write_bytes(CONTENT)
    assert await run(place, "put", str(tmp_path / "1.tar"), place.url) == (0, "1.tar: 10240 bytes kept\n")
    put_output = await run(place, "put", str(tmp_path / "2.tar"), place.url, "--keep", "1")
    assert put_output == (0, "2.tar: 10240 bytes kept\n1.tar: deleted\n")
    listed = await run(place, "list", place.url)
    assert [line.split() for line in listed[1].splitlines()] == [
        ["name", "bytes", "state"],
        ["2.tar", "10240", "complete"],
    ]
    in_json = await run(place, "list", place.url, "--json")
    assert in_json == (0, '{"name": "2.tar", "bytes": 10240, "state": "complete"}\n')
    back = tmp_path / "back.tar"
    assert await run(place, "get", place.url, "2.tar", str(back)) == (0, f"{back}: 10240 bytes, as they were put\n")
    assert back.read_bytes() == CONTENT
    assert await run(place, "get", place.url, "1.tar", str(tmp_path / "x")) == (
        1,
        "backup 1.tar does not exist or is incomplete\n",
    )
    code, text = await run(place, "list", "http://chats")
    assert (code, "expected s3://bucket" in text) == (2, True)
    code, text = await run(place, "list", place.url, AWS_ACCESS_KEY_ID="", AWS_EC2_METADATA_DISABLED="true")
    assert (code, "AWS_ACCESS_KEY_ID" in text) == (1, True)
    code, text = await run(place, "list", place.url, AWS_SECRET_ACCESS_KEY="another")
    assert (code, "SignatureDoesNotMatch" in text or "403" in text) == (1, True), text
