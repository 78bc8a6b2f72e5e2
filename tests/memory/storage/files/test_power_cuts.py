"""Power cuts: whatever unsynced data a disk has lost, every acknowledged line is there."""

import asyncio
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import NotFound
from services.memory.log import recovery
from services.memory.storage.engine import Engine
from services.memory.storage.files.disk import Disk, list_log_names, read_log_file
from services.memory.storage.files.engine import open_files
from tests.memory.power import disk_model
from tests.memory.power.recording import Call, record_calls
from tests.memory.power.workload import CHATS, SECRET, WORDS

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed on this machine")

KILLS = (pytest.param(0, marks=pytest.mark.nightly), 7, pytest.param(15, marks=pytest.mark.nightly))
"""Syncs at which the first process is killed; a second one continues, and then the power is cut."""


class Recording:
    """Calls on a folder. It is no dataclass: Hypothesis would print all its fields, megabytes here, instead of a
    failure.
    """

    def __init__(self, calls: list[Call], root: Path, written: dict[str, dict[int, str]]) -> None:
        self.calls = calls
        self.root = root
        self.written = written
        """Ids of each chat's lines by number, as they were at the end."""

    def cut_at(self, place: int, target: Path, seed: int) -> list[list[str]]:
        """Write a folder that a power cut may leave there, and return the lines printed before."""
        before = self.calls[:place]
        disk = disk_model.Disk(self.root)
        disk.apply_calls(before)
        disk.write_any(target, Random(seed))
        printed = b"".join(call.data for call in before if call.name == "print").decode()
        return [words for line in printed.splitlines() if (words := line.split()) and words[0] in WORDS]


@pytest.fixture(scope="module", params=KILLS)
def recording(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    base = tmp_path_factory.mktemp("power")
    root = base / "data"
    root.mkdir()
    first, then = (
        f"{sys.executable} -m tests.memory.power.workload {root}/chats {kill}" for kill in (request.param, 0)
    )
    command = ["sh", "-c", f"{first}; {then}" if request.param else then]
    calls = asyncio.run(record_calls(command, root, base / "trace"))
    printed = b"".join(call.data for call in calls if call.name == "print")
    assert b"deleted" in printed, "the workload must come to its end"
    written = {chat_id: _read_lines(root / "chats", chat_id) for chat_id in list_log_names(root / "chats")}
    return Recording(calls, root, written)


def _read_lines(folder: Path, chat_id: str) -> dict[int, str]:
    return {line.n: line.uuid for line in recovery.read_log(read_log_file(folder, chat_id), chat_id).lines}


async def _check_cut(recording: Recording, place: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        target = Path(name) / "data"
        printed = recording.cut_at(place, target, seed)
        with closing(Disk(target / "chats")) as disk:
            async with open_files(disk) as engine:
                await _check_engine(engine, printed, recording)
            if "forgot" in {words[0] for words in printed}:
                _check_forgotten(target)


def _check_forgotten(folder: Path) -> None:
    for path in folder.rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))])
async def test_a_power_cut_during_a_deletion_leaves_all_facts_or_all_but_the_deleted_one(
    recording: Recording, seed: int
) -> None:
    words = [call.data.split()[:1] for call in recording.calls]
    for place in range(words.index([b"forgetting"]) + 1, words.index([b"forgot"]) + 2):
        await _check_cut(recording, place, seed)


@given(place=st.floats(0, 1), seed=st.integers(0, 2**32))
async def test_everything_acknowledged_survives_any_power_cut(recording: Recording, place: float, seed: int) -> None:
    await _check_cut(recording, round(place * len(recording.calls)), seed)


@pytest.mark.parametrize("path", [".*/chats", ".*/chats/[^/]*\\.json", ".*/data"])
async def test_the_disk_model_detects_a_missing_sync(recording: Recording, path: str) -> None:
    syncs = [call for call in recording.calls if call.name == "sync" and re.fullmatch(path, call.path)]
    calls = [call for call in recording.calls if call not in syncs and call.name != "sync all"]
    broken = Recording(calls, recording.root, recording.written)

    async def check_many() -> None:
        for seed in range(60):
            await _check_cut(broken, len(calls), seed)

    assert syncs
    with pytest.raises((NotFound, AssertionError, IndexError)):
        await check_many()


async def _check_engine(engine: Engine, printed: Sequence[Sequence[str]], recording: Recording) -> None:
    forgotten = {words[1] for words in printed if words[0] == "forgetting"}
    deleted = {words[1] for words in printed if words[0] in ("deleting", "deleted")}
    for chat_id in {words[1] for words in printed if words[0] in ("appended", "forked")} - deleted:
        await engine.chats.load(chat_id)
    for chat_id in await engine.index.list_chats():
        chat = await engine.chats.load(chat_id)
        assert not chat.info.is_damaged, chat_id
        lines = {line.n: line.uuid for line in chat.log}
        assert list(lines) == list(range(1, len(lines) + 1))
        if chat_id in recording.written:
            assert lines.items() <= recording.written[chat_id].items()
    for word, *values in printed:
        match word, values:
            case "appended", [chat_id, request_id, first_n, last_n] if chat_id not in deleted:
                chat = await engine.chats.load(chat_id)
                assert chat.log[int(first_n) - 1].uuid == request_id
                assert len(chat.log) >= int(last_n)
            case "put", [chat_id, blob_id]:
                assert engine.blobs.find(chat_id, blob_id)
            case "remembered", [fact_id]:
                facts = {fact.uuid: fact for fact in await engine.records.facts.list_all()}
                assert bool(facts[fact_id].text) != bool(facts[fact_id].deleted_at)
                assert facts[fact_id].text or fact_id in forgotten
            case "forgot", [fact_id]:
                facts = {fact.uuid: fact for fact in await engine.records.facts.list_all()}
                assert facts[fact_id].deleted_at
            case "leased", [run_id, generation]:
                lease = await engine.leases.acquire(CHATS[0], run_id, "here:1", 15_000)
                assert lease.generation > int(generation)
            case "deleted", [chat_id]:
                with pytest.raises(NotFound):
                    await engine.chats.load(chat_id)
            case _:
                pass
