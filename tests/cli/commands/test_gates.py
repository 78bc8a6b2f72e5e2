"""Gates on the command line: they are listed, shown, claimed, answered, exported and watched."""

import asyncio
import json
import re
import signal
from pathlib import Path

from headrace.errors import Claimed, PermissionDenied
from headrace.hash_chain import FIRST, chain_line
from headrace.v1 import gates_pb2
from tests.support.command_line import GIVEN_UP_S, run, start
from tests.support.facade.scripted import CHAT, GATE, RUN, Script, suite


async def test_gates_are_listed_shown_and_answered(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        _, listed, _ = await run("gates", "list", "--own", "--risk", "high", "--agent", "clerk", url=facade.url)
        _, shown, _ = await run("gates", "show", RUN, GATE.gate_id, url=facade.url)
        answer_command = ("gates", "answer", RUN, GATE.gate_id)
        approved = await run(*answer_command, "approve", "--note", "be quick", url=facade.url)
        edited = await run(*answer_command, '{"decision": "edit", "arguments": {"amount": 1}}', url=facade.url)
        refused = await run("gates", "answer", RUN, "t_none", "reject", url=facade.url)
        wrong = [await run(*answer_command, *rest, url=facade.url) for rest in (["maybe"], ["{}", "--note", "x"])]
        delegation_result = await run("gates", "delegate", RUN, GATE.gate_id, "user:cleo", "role:board", url=facade.url)
        ask_back_result = await run("gates", "ask-back", RUN, GATE.gate_id, "what for?", url=facade.url)
    list_request, _, first, second, _, delegated, question = facade.script.requests
    assert list_request == gates_pb2.ListGatesRequest(scope="own", risk="high", agent_key="clerk")
    head, row = (re.split("  +", line) for line in listed.decode().splitlines())
    assert head[:4] == ["run", "gate", "opened", "kind"]
    assert (row[0], row[1], row[3]) == (RUN, GATE.gate_id, "approval")
    assert row[4:] == ["pay", "clerk", "ada", "high", "-", "-", "it costs"]
    assert json.loads(shown)["arguments"] == {"amount": 12345678901234567890}
    assert (approved[0], edited[0], approved[1]) == (0, 0, b"accepted: as it is\n")
    assert json.loads(first.payload) == {"decision": "approve", "note": "be quick"}
    assert json.loads(second.payload) == {"decision": "edit", "arguments": {"amount": 1}}
    assert (refused[0], refused[1]) == (1, b"unmatched: as it is\n")
    assert [result[0] for result in wrong] == [2, 2]
    assert (delegation_result[1], ask_back_result[1]) == (b"delegated\n", b"asked_back\n")
    assert [*delegated.to] == ["user:cleo", "role:board"]
    assert (question.gate_id, question.note) == (GATE.gate_id, "what for?")


async def test_hidden_characters_of_arguments_are_escaped_and_approval_takes_a_hash(tmp_path: Path) -> None:
    value = {"iban": "DE\u202e98 76\u202c\u200b", "by": "אבג"}
    script = Script(gate_arguments=json.dumps(value, ensure_ascii=False), gate_sha256="5" * 64)
    async with suite(tmp_path, script) as facade:
        _, shown, _ = await run("gates", "show", RUN, GATE.gate_id, url=facade.url)
        approved = await run("gates", "answer", RUN, GATE.gate_id, "approve", "--sha256", "5" * 64, url=facade.url)
    assert r'"DE\u202e98 76\u202c\u200b"' in shown.decode()
    assert json.loads(shown)["arguments"] == value
    assert json.loads(shown)["argumentsSha256"] == "5" * 64
    assert approved[0] == 0
    assert json.loads(facade.script.requests[-1].payload) == {"decision": "approve", "argumentsSha256": "5" * 64}


async def test_a_credential_is_read_only_from_standard_input(tmp_path: Path) -> None:
    at = ("gates", "answer", RUN, GATE.gate_id)
    async with suite(tmp_path) as facade:
        supplied = await run(*at, "--credential", "-", url=facade.url, given=b"hunter2-of-ada\n")
        rest = (["--credential", "hunter2-of-ada"], ["--credential", "-", "approve"], [])
        wrong = [await run(*at, *words, url=facade.url) for words in rest]
    [request] = facade.script.requests
    assert (supplied[0], json.loads(request.payload)) == (0, {"decision": "supply", "secret": "hunter2-of-ada"})
    assert [result[0] for result in wrong] == [2, 2, 2]


async def test_a_gate_is_claimed_answered_with_the_claim_and_released(tmp_path: Path) -> None:
    at = (RUN, GATE.gate_id)
    async with suite(tmp_path) as facade:
        claimed = await run("gates", "claim", "--lease", "90", *at, url=facade.url)
        await run("gates", "answer", *at, "approve", url=facade.url)
        released = await run("gates", "release", "--holder", "desk", *at, url=facade.url)
        facade.script.claim_error = Claimed("it is being answered by 'bob' until noon", claimedBy="bob", until=1)
        refused = await run("gates", "claim", *at, url=facade.url)
    claim, answer, release, _ = facade.script.requests
    assert (claimed[0], claimed[1].decode().startswith("claimed by default until ")) == (0, True)
    assert (claim.gate_id, claim.lease_ms, claim.holder[:4]) == (GATE.gate_id, 90_000, "cli ")
    assert answer.holder == claim.holder, "the same machine"
    assert (released[1], release.holder) == (b"released\n", "desk")
    assert (refused[0], b"answered by 'bob'" in refused[2]) == (1, True)


async def test_grants_are_made_listed_and_revoked(tmp_path: Path) -> None:
    grant = gates_pb2.Grant(grant_id="g_1", chat_id=CHAT, run_id=RUN, scope="chat", tool_name="pay", risk="high")
    grant.MergeFrom(
        gates_pb2.Grant(grounds=["the rule"], made_by=["bob"], requester="ada", expires_at=1_900_000_000_000)
    )
    async with suite(tmp_path, Script(grants=[grant])) as facade:
        answer_command = ("gates", "answer", RUN, GATE.gate_id)
        answered = await run(*answer_command, "approve", "--grant", "chat", "--lasts", "3600", url=facade.url)
        wrong = await run(*answer_command, "{}", "--grant", "run", url=facade.url)
        listed = await run("gates", "grants", "--chat", CHAT, "--tenant", url=facade.url)
        revoked = await run("gates", "revoke", CHAT, "g_1", url=facade.url)
    answer, list_request, revocation = facade.script.requests
    assert json.loads(answer.payload) == {"decision": "approve", "grant": "chat", "grantMs": 3_600_000}
    assert answered[1] == b"accepted: as it is\ngranted for later calls: g_1\n"
    assert wrong[0] == 2
    assert list_request == gates_pb2.ListGrantsRequest(scope="tenant", chat_id=CHAT)
    row = re.split(r"  +", listed[1].decode().splitlines()[1])
    assert row[:-1] == [CHAT, "g_1", "pay", "ada", "high", "the rule", "bob", "chat"]
    assert row[-1].startswith("20")
    assert (revoked[1], revocation.grant_id) == (b"revoked\n", "g_1")


async def test_an_export_is_complete_or_fails_and_can_be_verified(tmp_path: Path) -> None:
    begin, previous = chain_line(FIRST, {"seq": 0, "step": "begin"})
    asked_line, previous = chain_line(previous, {"seq": 1, "step": "asked", "by": "zoë"})
    end, last = chain_line(previous, {"seq": 2, "step": "end", "count": 1})
    path, other = tmp_path / "audit.jsonl", tmp_path / "other.jsonl"
    async with suite(tmp_path, Script(exported=[begin, asked_line, end])) as facade:
        given = ("--chat", CHAT, "--since", "2026-01-02", "--content", "--output", str(path))
        written = await run("gates", "export", *given, url=facade.url)
        verified = await run("gates", "verify", "--hash", last, str(path), url=facade.url)
        other.write_text(path.read_text().replace("zoë", "bob"))
        forged = await run("gates", "verify", str(other), url=facade.url)
        elsewhere = await run("gates", "verify", "--hash", FIRST, str(path), url=facade.url)
        facade.script.exported = [begin, asked_line]
        cut = await run("gates", "export", url=facade.url)
    [request, _] = facade.script.requests
    assert (request.chat_id, request.with_content, request.since % 1000) == (CHAT, True, 0)
    assert (written[0], written[1], written[2]) == (0, b"", f"1 steps, the last hash is {last}\n".encode())
    assert path.read_text() == f"{begin}\n{asked_line}\n{end}\n"
    assert (verified[0], verified[1][:7]) == (0, b"3 lines")
    assert (forged[0], forged[2]) == (1, b"Error: line 2 was changed\n")
    assert (elsewhere[0], b"another file" in elsewhere[2]) == (1, True)
    assert (cut[0] != 0, cut[1].decode()) == (True, f"{begin}\n{asked_line}\n")


def make_update(gate_id: str, **fields: str) -> gates_pb2.WatchGatesResponse:
    gate = gates_pb2.Gate()
    gate.CopyFrom(GATE)
    gate.MergeFrom(gates_pb2.Gate(gate_id=gate_id, **fields))  # pyright: ignore[reportArgumentType] - all of them text
    return gates_pb2.WatchGatesResponse(gate=gate)


async def test_watched_gates_are_printed_once_though_reported_twice(tmp_path: Path) -> None:
    begin = gates_pb2.WatchGatesResponse(list_begin=gates_pb2.GateListBegin())
    end = gates_pb2.WatchGatesResponse(list_end=gates_pb2.GateListEnd())
    again = [begin, make_update("g_1"), make_update("g_3"), end]
    script = Script(
        gate_news=[
            begin,
            make_update("g_1"),
            make_update("g_2"),
            end,
            make_update("g_4"),
            make_update("g_4", state="answered"),
            *again,
        ]
    )
    async with suite(tmp_path, script) as facade:
        process = await start("gates", "watch", "--own", "--risk", "high", url=facade.url)
        assert process.stdout is not None
        async with asyncio.timeout(GIVEN_UP_S):
            lines = [(await process.stdout.readline()).decode().split() for _ in range(6)]
            process.send_signal(signal.SIGINT)
            await process.communicate()
        refusing = Script(gate_news=[PermissionDenied("not yours")])
    states = [(state, gate_id) for state, _, gate_id, *_ in lines]
    assert states == [
        *[("open", "g_1"), ("open", "g_2"), ("open", "g_4"), ("answered", "g_4")],
        *[("open", "g_3"), ("closed", "g_2")],
    ]
    [request] = script.requests
    assert request == gates_pb2.WatchGatesRequest(scope="own", risk="high")
    async with suite(tmp_path, refusing) as facade:
        code, _, complaint = await run("gates", "watch", "--tenant", url=facade.url)
    assert (code, b"not yours" in complaint) == (1, True)
