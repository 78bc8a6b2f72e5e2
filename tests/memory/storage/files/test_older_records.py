"""Records in a folder from before records.sqlite, as commit 3724abc1 wrote them."""

import shutil
from pathlib import Path

import pytest

from services.memory.storage.files.older_records import OLDER
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from tests.support.memory.serving import memory_over

SCHEDULE, KEY, HOLD = (f"80efa646-f1ba-4cb2-918b-e66574f6d06{n}" for n in range(3))

OP = Identity("acme", "op", scopes=ALL_SCOPES)

FILES = {
    f"schedules/{SCHEDULE}.json": (
        f'{{"scheduleId":"{SCHEDULE}","tenant":"acme","user":"op","version":25706713038765671,"agentKey":"writer",'
        '"message":"morning","createdAt":1795970804444,"updatedAt":1795970804444,"name":"morning","cron":"0 7 * * *",'
        '"timeZone":"UTC","overlap":"skip","nextAt":1796022000000}\n'
    ),
    f"keys/{KEY}.json": (
        f'{{"keyId":"{KEY}","tenant":"acme","user":"bob","version":35965710940108620,"sha256":"15c0d7ab83b7","name":'
        '"laptop","scopes":["ask"],"createdAt":1795970804446,"createdBy":"op","updatedAt":1795970804446,'
        '"revision":1795970804446}\n'
    ),
    f"holds/{HOLD}.json": (
        f'{{"holdId":"{HOLD}","tenant":"acme","version":7,"reason":"matter","placedBy":"op","placedAt":1795970804446,'
        '"user":"zoe"}'
    ),
    "agents/current/7e4b6c10-0df1-0cac-e05a-e524fdd7388d.json": (
        '{"tenant":"acme","agentKey":"guide","version":19055434062380399,"agentVersion":1,"updatedAt":1795970804563,'
        '"updatedBy":"op","definition":"{\\"a\\":1}","revision":1795970804567}\n'
    ),
    "agents/versions/7e4b6c100df10cace05ae524fdd7388d791140a96c43a273694af69483486fcf.1": (
        '{"tenant":"acme","agentKey":"guide","version":1,"hash":'
        '"015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862","createdAt":1795970804531}\n{"a":1}'
    ),
    "facts/ae748b42-e138-5043-9247-b3383a739428.json": (
        '{"_type":"fact","_n":1,"uuid":"8307c4f4-dacf-4e53-aa68-d7e6a9044575","requestId":"r1","updatedAt":1,'
        '"_user":"op","text":"likes tee","_tenant":"acme","createdAt":1795970804438}\n'
        "{damaged\n"
        '[{"_type":"fact","_n":2,"uuid":"6b7a8c61-aecc-4cef-b3d7-05806e7c609f","requestId":"","updatedAt":2,"_user":'
        '"op","text":"likes milk","_tenant":"acme","topic":"milk","createdAt":1795970804440},'
        '{"_type":"fact","_n":1,"uuid":"8307c4f4-dacf-4e53-aa68-d7e6a9044575","requestId":"r1","updatedAt":3,'
        '"_user":"op","text":"likes tea","_tenant":"acme","createdAt":1795970804438}]\n'
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "chats" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "chats"


def find_files(folder: Path, pattern: str = "*") -> set[Path]:
    """Return the files of the store, except those of its audit log."""
    return {path for path in folder.rglob(pattern) if path.is_file() and "audit" not in path.parts}


async def test_older_records_are_imported_once_and_set_aside(folder: Path) -> None:
    for _ in range(2):
        async with memory_over(folder) as memory:
            with acting_as(OP):
                assert [found.text for found in await memory.list_facts()] == ["likes milk", "likes tea"]
                schedule = (await memory.call("GetSchedule", schedule_id=SCHEDULE)).schedule
                assert (schedule.agent_key, schedule.message) == ("writer", "morning")
                [key] = (await memory.call("ListKeys")).keys
                assert (key.key_id, key.user, key.state) == (KEY, "bob", "active")
                [hold] = (await memory.call("ListHolds")).holds
                assert (hold.hold_id, hold.user) == (HOLD, "zoe")
                same = await memory.call("PutAgentVersion", agent_key="guide", definition='{"a":1}')
                assert same.version == 1
        assert (folder / OLDER / "schedules" / f"{SCHEDULE}.json").exists()
        facts = folder / "facts" / "ae748b42-e138-5043-9247-b3383a739428.json"
        assert find_files(folder, "*/*.json") - find_files(folder / OLDER) == {facts}, "its damaged line stays"


async def test_readers_of_changes_miss_no_imported_record(folder: Path) -> None:
    """Imported records keep the revisions of the files, which are Unix milliseconds."""
    async with memory_over(folder) as memory:
        reply = await memory.call_as(None, "ReadAgentChanges", after_revision=1795970804560)
        assert [agent.agent_key for agent in reply.agents] == ["guide"]
        with acting_as(OP):
            await memory.call("PutAgentDefinition", agent_key="guide", definition="{}", version=2)
        later = await memory.call_as(None, "ReadAgentChanges", after_revision=reply.revision)
        assert [agent.definition for agent in later.agents] == ["{}"]


async def test_records_restored_after_a_downgrade_are_imported_again(folder: Path) -> None:
    async with memory_over(folder) as memory:
        with acting_as(OP):
            await memory.call("DeleteSchedule", schedule_id=SCHEDULE)
            fields = {"agent_key": "writer", "message": "evening", "cron": "0 19 * * *"}
            evening = (await memory.call("CreateSchedule", **fields)).schedule
    shutil.copytree(folder / OLDER, folder, dirs_exist_ok=True)
    shutil.rmtree(folder / OLDER)
    async with memory_over(folder) as memory:
        with acting_as(OP):
            ids = {schedule.schedule_id for schedule in (await memory.call("ListSchedules")).schedules}
    assert ids == {SCHEDULE, evening.schedule_id}


async def test_the_set_aside_files_keep_no_deleted_text(folder: Path) -> None:
    async with memory_over(folder) as memory:
        with acting_as(OP):
            [milk, _] = await memory.list_facts()
            await memory.delete_fact(milk.fact_id)
            assert not [path for path in find_files(folder) if b"likes milk" in path.read_bytes()]
            assert (folder / OLDER / "schedules").is_dir()
