"""Lifetimes of pooled interpreters, with real ones in the process tier."""

import asyncio
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Overloaded
from services.runtime.auth.identity import Identity, acting_as
from services.tools.interpreter.pool import InterpreterPool, run_pool
from services.tools.interpreter.session import CodeEnded, InterpreterSession, MarkedOutput, start_session
from services.tools.sandbox.command import CommandOutput, Stream
from services.tools.sandbox.supervisor.policy import Policy


async def run_code(session: InterpreterSession, code: str) -> str:
    async with aclosing(session.execute(code, 5)) as pieces:
        return "".join([piece.text async for piece in pieces if isinstance(piece, CommandOutput)])


async def run_in_pool(found: InterpreterPool, folder: Path, run: str, code: str) -> str:
    async with found.borrow_session(("chat", run), lambda: start_session(policy(folder))) as borrowed:
        return await run_code(borrowed.session, code)


def policy(folder: Path) -> Policy:
    return Policy((), str(folder), home_parent=str(folder))


async def test_an_idle_interpreter_is_ended(tmp_path: Path) -> None:
    async with asyncio.timeout(100), run_pool(2, idle_s=0.2) as found:
        async with found.borrow_session(("chat", "run"), lambda: start_session(policy(tmp_path))) as borrowed:
            session = borrowed.session
            await run_code(session, "import time; time.sleep(0.4)")
            assert session.is_alive
        while session.is_alive:
            await asyncio.sleep(0.01)
        async with found.borrow_session(("chat", "run"), lambda: start_session(policy(tmp_path))) as again:
            assert again.has_forgotten


@pytest.mark.parametrize("is_used", [False, True], ids=["ended", "used"])
async def test_an_interpreter_used_or_ended_during_the_idle_sweep_is_left_alone(
    tmp_path: Path, *, is_used: bool
) -> None:
    keys = [("chat 1", "run"), ("chat 2", "run")]
    pool, sessions = InterpreterPool(2, idle_s=0.5), list[InterpreterSession]()
    async with asyncio.timeout(100):
        for key in keys:
            async with pool.borrow_session(key, lambda: start_session(policy(tmp_path))) as borrowed:
                sessions.append(borrowed.session)
        await asyncio.sleep(0.5)  # both are due at the first look
        sweeping = asyncio.create_task(pool.end_idle())
        while sessions[0].is_alive:
            await asyncio.sleep(0)
        if is_used:
            async with pool.borrow_session(keys[1], lambda: start_session(policy(tmp_path))) as again:
                assert await run_code(again.session, "import time; time.sleep(0.3); 7") == "7\n"
        else:
            await pool.end_of_chat("chat 2")
        await asyncio.sleep(0.2)
        assert not sweeping.done()
        sweeping.cancel()
        await pool.end_all()


async def test_interpreters_in_use_are_not_replaced(tmp_path: Path) -> None:
    async with asyncio.timeout(100), run_pool(1) as found:
        async with found.borrow_session(("chat", "first"), lambda: start_session(policy(tmp_path))):
            with pytest.raises(Overloaded, match="1 interpreters are in use"):
                await run_in_pool(found, tmp_path, "second", "1")
        assert await run_in_pool(found, tmp_path, "second", "1") == "1\n"


async def test_a_tenant_ends_no_interpreter_of_another_that_has_fewer(tmp_path: Path) -> None:
    farm, mill = Identity("farm", "bob"), Identity("mill", "ann")
    async with asyncio.timeout(100), run_pool(2) as found:
        with acting_as(farm):
            await run_in_pool(found, tmp_path, "farm", "x = 7")
        with acting_as(mill):
            for run in ("one", "two", "three"):
                await run_in_pool(found, tmp_path, run, "1")
        with acting_as(farm):
            assert await run_in_pool(found, tmp_path, "farm", "x") == "7\n"


async def test_a_tenant_cannot_use_all_interpreters(tmp_path: Path) -> None:
    async with asyncio.timeout(100), run_pool(2, is_shared=True) as found:
        with acting_as(Identity("mill", "ann")):
            async with found.borrow_session(("chat", "one"), lambda: start_session(policy(tmp_path))):
                with pytest.raises(Overloaded, match="1 interpreters are in use"):
                    await run_in_pool(found, tmp_path, "two", "1")
                with acting_as(Identity("farm", "bob")):
                    assert await run_in_pool(found, tmp_path, "farm", "1") == "1\n"


async def test_an_interpreter_that_fails_to_start_frees_its_place(tmp_path: Path) -> None:
    async def failing() -> InterpreterSession:
        raise OSError("no room")

    async with asyncio.timeout(100), run_pool(1) as found:
        with pytest.raises(OSError, match="no room"):
            async with found.borrow_session(("chat", "first"), failing):
                pass
        assert await run_in_pool(found, tmp_path, "second", "1") == "1\n"


async def test_an_interpreter_killed_between_two_calls_is_reported(tmp_path: Path) -> None:
    session = await start_session(policy(tmp_path))
    async with asyncio.timeout(100):
        await run_code(session, "import os, threading; threading.Timer(0.1, os._exit, (3,)).start()")
        await asyncio.sleep(0.3)
        async with aclosing(session.execute("1", 5)) as pieces:
            assert [piece async for piece in pieces] == [CodeEnded("died", problem="exit code 3")]
    assert not session.is_alive


async def test_an_interpreter_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="ended at once"):
        async with asyncio.timeout(100):
            await start_session(policy(tmp_path / "missing"))


@pytest.mark.parametrize("code", ["print('x'); 1 / 0", "print('x')"])
async def test_an_abandoned_answer_is_not_returned_for_the_next_call(tmp_path: Path, code: str) -> None:
    session = await start_session(policy(tmp_path))
    async with asyncio.timeout(100):
        for _ in range(5):
            async with aclosing(session.execute(code, 5)) as pieces:
                await anext(pieces)
            async with aclosing(session.execute("2", 5)) as pieces:
                assert [piece async for piece in pieces] == [
                    CommandOutput("stdout", "2\n"),
                    CodeEnded("ended", ok=True),
                ]
        await session.close()


TOKEN = "0123456789abcdef"


@given(st.binary(max_size=60), st.lists(st.integers(0, 100), max_size=6), st.binary(max_size=10))
def test_output_ends_at_the_end_mark(before: bytes, cuts: list[int], after: bytes) -> None:
    held: dict[Stream, bytes] = {}
    marked = MarkedOutput(TOKEN, held)
    data = before + marked.text.encode() + after
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    pieces = [data[start:end] for start, end in pairwise(places)]
    assert b"".join(marked.take_output("stdout", piece) for piece in pieces) == before
    assert not marked.is_complete
    assert held.get("stdout", b"") == after
    marked.take_output("stderr", marked.text.encode())
    assert marked.is_complete


def test_zero_bytes_that_start_no_mark_are_output() -> None:
    marked = MarkedOutput(TOKEN, {})
    output = marked.take_output("stdout", b"a\0b\0") + marked.take_output("stdout", b"\0c" + b"d" * 40)
    assert output == b"a\0b\0\0c" + b"d" * 40


def test_bytes_after_a_mark_belong_to_the_next_execution() -> None:
    held: dict[Stream, bytes] = {}
    first = MarkedOutput(TOKEN, held)
    first.take_output("stdout", first.text.encode() + b"late ")
    second = MarkedOutput("f" * 16, held)
    assert second.take_output("stdout", b"and more") == b"late and more"
