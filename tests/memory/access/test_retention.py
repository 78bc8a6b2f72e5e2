"""How long chats are kept, by tenant and agent."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.memory.__main__ import make_retention
from services.memory.config import Config
from services.memory.data.retention import RetentionFile, clean_up, prune_chats
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.clock import CLOCK
from services.runtime.ending import CannotServe
from tests.support.memory.clocks import Later
from tests.support.memory.engines import Files, open_engine
from tests.support.memory.serving import memory_over
from tests.support.memory.writing import run_line

FILE = """
chatDays: 300
agents: {advisor: 200, auditor: never}
tenants:
  bank:
    chatDays: 100
    agents: {advisor: 50, archivist: never}
  shop: {}
"""


@pytest.mark.parametrize(
    ("tenant", "agent", "days"),
    [
        ("bank", "advisor", 50),
        ("bank", "writer", 100),
        ("bank", "auditor", 100),
        ("bank", "archivist", None),
        ("shop", "advisor", 200),
        ("shop", "auditor", None),
        ("shop", "writer", 300),
        ("other", "writer", 300),
    ],
)
def test_the_most_specific_rule_applies(tmp_path: Path, tenant: str, agent: str, days: int | None) -> None:
    path = tmp_path / "retention.yaml"
    path.write_text(FILE)
    rules = RetentionFile(path, 7).read()
    assert rules.find_days(tenant, agent) == days
    assert rules.find_shortest() == 50


def test_without_a_rule_in_the_file_the_setting_applies(tmp_path: Path) -> None:
    path = tmp_path / "retention.yaml"
    path.write_text("tenants: {bank: {chatDays: 100}}")
    assert RetentionFile(path, 7).read().find_days("shop", "writer") == 7
    assert RetentionFile(path, None).read().find_days("shop", "writer") is None
    assert RetentionFile(None, None).read().find_shortest() is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("chatDays: 0", "chatDays"),
        ("chatDays: soon", "chatDays"),
        ("chatDays: 1.5", "chatDays"),
        ("tenants: {bank: {chatDay: 3}}", "tenants.bank.chatDay"),
        ("agents: [advisor]", "agents"),
        ("{", "not valid YAML"),
        ("chatDays: !!int ''", "not valid YAML"),
        ("[" * 5000, "not valid YAML"),
    ],
)
def test_a_bad_file_is_rejected_naming_the_field(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "retention.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=problem):
        RetentionFile(path, 7).read()


async def test_each_chat_is_pruned_after_its_own_number_of_days(tmp_path: Path) -> None:
    folder = tmp_path / "chats"
    chats: dict[str, str] = {}
    async with memory_over(folder) as memory:
        for tenant, agent in (("bank", "advisor"), ("bank", "writer"), ("shop", "writer"), ("bank", "archivist")):
            with acting_as(Identity(tenant, "ada")):
                chat_id, _ = await memory.begin_with(run_line(), agent_key=agent)
                chats[f"{tenant}/{agent}"] = chat_id
    path = tmp_path / "retention.yaml"
    path.write_text(FILE)
    rules = RetentionFile(path, None).read()
    remaining = set(chats.values())
    async with open_engine(Files(folder)) as engine:
        await engine.index.wait_until_complete()
        for days, pruned in ((49, None), (51, "bank/advisor"), (101, "bank/writer"), (301, "shop/writer")):
            expected = [chats[pruned]] if pruned else []
            clock = CLOCK.set(Later(days))
            assert await prune_chats(engine, rules) == expected
            CLOCK.reset(clock)
            remaining -= set(expected)
        assert set(await engine.index.list_chats()) == remaining == {chats["bank/archivist"]}


async def test_a_damaged_audit_log_does_not_stop_the_pruning_of_chats(tmp_path: Path) -> None:
    folder = tmp_path / "chats"
    async with memory_over(folder) as memory:
        await memory.begin_with(run_line())
    (folder / "audit" / "harmed" / "1.jsonl").mkdir(parents=True)
    async with open_engine(Files(folder)) as engine:
        with capture_logs() as logs:
            clock = CLOCK.set(Later(8))
            await clean_up(engine, RetentionFile(None, 7), audit_days=30)
            CLOCK.reset(clock)
        assert await engine.index.list_chats() == []
    assert [entry["what"] for entry in logs if entry["event"] == "not tidied"] == ["audit log"]


def test_nothing_is_kept_for_no_days() -> None:
    """Elsewhere 0 means for ever, and here it deleted every chat at the next start:
    https://github.com/home-assistant/core/issues/138702 (2025-02)."""
    with pytest.raises(
        ValueError, match="MEMORY_CHAT_RETENTION_DAYS: 0: expected 1 or more; empty keeps them for ever"
    ):
        Config(chat_retention_days=0)
    with pytest.raises(ValueError, match="MEMORY_AUDIT_RETENTION_DAYS: 0"):
        Config(audit_retention_days=0)


def test_a_service_does_not_start_with_a_bad_file(tmp_path: Path) -> None:
    path = tmp_path / "retention.yaml"
    path.write_text("chatDays: 0")
    with pytest.raises(CannotServe, match="chatDays"):
        make_retention(Config(retention_file=path))
    with pytest.raises(CannotServe):
        make_retention(Config(retention_file=tmp_path / "absent.yaml"))
    assert make_retention(Config(chat_retention_days=3)).read().find_days("any", "any") == 3
