"""The archive that memory exports of a user's data."""

import json
import re

import pytest

from headrace.errors import PermissionDenied
from services.runtime.auth.identity import acting_as
from tests.support.memory.engines import Kept
from tests.support.memory.people import ADA, ADMIN, BOB, FOREIGN, ask, export, furnished, mark, share
from tests.support.memory.writing import Memory

pytestmark = pytest.mark.engines

RECORDS = ("facts", "schedules", "grants", "gates", "keys", "run_webhooks", "agents", "spend")


@pytest.mark.engines("encrypted", "encrypted s3 postgres")
async def test_an_archive_contains_all_data_of_the_user_and_none_of_others(kept: Kept) -> None:
    async with furnished(kept, ADA, BOB, FOREIGN) as (memory, (ada, bob, _)):
        await share(memory, BOB, bob["chat"], "user:ada")
        await ask(memory, ADA, mark(ADA, "shared"), bob["chat"])
        entries = await export(memory, ADA)
        assert sorted(entries) == sorted(
            [
                f"chats/{ada['chat']}.json",
                f"chats/{ada['chat']}/{ada['blob']}",
                f"others_chats/{bob['chat']}.json",
                *(f"{name}.jsonl" for name in RECORDS),
            ]
        )
        assert entries[f"chats/{ada['chat']}.json"] == await kept.log(ada["chat"])
        assert entries[f"chats/{ada['chat']}/{ada['blob']}"] == mark(ADA, "blob").encode()
        assert mark(ADA, "shared").encode() in entries[f"others_chats/{bob['chat']}.json"]
        for name, what in (("facts", "fact"), ("schedules", "schedule"), ("keys", "key")):
            assert mark(ADA, what).encode() in entries[f"{name}.jsonl"]
        [spend_record] = [json.loads(line) for line in entries["spend.jsonl"].splitlines()]
        assert (spend_record["user_name"], spend_record["model_calls"], spend_record["cost_nano_usd"]) == (
            "ada",
            2,
            3_000,
        )
        everything = b"".join(entries.values())
        assert not re.search(rb"mark(acmebob|elseada)", everything)
        assert not re.search(rb"sha256|secret", everything)


async def test_an_administrator_reads_another_users_archive_and_nobody_else_does(kept: Kept) -> None:
    async with furnished(kept, ADA) as (memory, _):
        assert await export(memory, ADMIN, "ada") == await export(memory, ADA)
        with pytest.raises(PermissionDenied):
            await export(memory, BOB, "ada")


async def test_a_long_log_is_exported_whole(memory: Memory, kept: Kept) -> None:
    with acting_as(ADA):
        chat_id, _ = await ask(memory, ADA, "long " * 40_000)
    entries = await export(memory, ADA)
    assert entries[f"chats/{chat_id}.json"] == await kept.log(chat_id)
