"""Somebody with a login who can write to the folder or the database cannot change an encrypted chat unnoticed."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, LogDamaged, NotFound
from services.memory.encryption.envelope import is_sealed_line
from services.memory.log.lines import add_checksum, remove_checksum
from services.memory.storage.files.data_keys import FOLDER, FileDataKeys
from services.runtime.auth.identity import Identity, acting_as
from tests.support.memory.admin_cli import run_command as run
from tests.support.memory.encrypted_stores import ADA, BOB, Store, opening
from tests.support.memory.engines import Files, open_engine, open_keys
from tests.support.memory.messages import user
from tests.support.memory.writing import Memory, new_id, query_line, run_line, step_line

EVE = replace(ADA, user="eve")
"""A colleague of ada; BOB belongs to another tenant."""


async def write_chat(memory: Memory, who: Identity, chat_id: str, word: str) -> None:
    """Write two runs, which are four lines."""
    with acting_as(who):
        for number in range(2):
            run_id = new_id()
            await memory.append(chat_id, run_id, query_line(f"{word} {number}"))
            await memory.append(chat_id, run_id, run_line())


def name_owner(line: bytes, who: Identity) -> bytes:
    text = remove_checksum(line)
    text = text.replace(b'"_tenant":"acme"', b'"_tenant":"%b"' % who.tenant.encode())
    return add_checksum(text.replace(b'"_user":"ada"', b'"_user":"%b"' % who.user.encode()))


async def plain_first(store: Store, chat_id: str, who: Identity) -> None:
    await store.write_line(chat_id, 1, name_owner((await store.kept.log(chat_id)).split(b"\n")[0], who))


async def plain_last(store: Store, chat_id: str, who: Identity) -> None:
    await store.write_line(chat_id, 4, name_owner((await store.kept.log(chat_id)).split(b"\n")[3], who))


async def all_plain(store: Store, chat_id: str, who: Identity) -> None:
    for number, line in enumerate((await store.kept.log(chat_id)).splitlines(), 1):
        await store.write_line(chat_id, number, name_owner(line, who))


async def make_anew(store: Store, chat_id: str, who: Identity, *, own: int) -> None:
    """Have memory encrypt the stranger's lines for the same places, and put the owner's back after the first `own`."""
    lines = await store.read_lines(chat_id)
    async with store.memory() as memory:
        await memory.acting_as(ADA).delete(chat_id)
        await write_chat(memory, who, chat_id, "mine")
    for number in range(own + 1, 5):
        await store.write_line(chat_id, number, lines[number - 1])


async def first_of_another(store: Store, chat_id: str, who: Identity) -> None:
    await make_anew(store, chat_id, who, own=1)


async def first_two_of_another(store: Store, chat_id: str, who: Identity) -> None:
    await make_anew(store, chat_id, who, own=2)


async def first_of_another_and_rubbish(store: Store, chat_id: str, who: Identity) -> None:
    """As if a disk error had damaged the line that would reveal it."""
    await make_anew(store, chat_id, who, own=1)
    await store.write_line(chat_id, 2, b"\0 rubbish")


async def another_chat(store: Store, chat_id: str, who: Identity) -> None:
    """Put the owner's lines where the stranger has a chat."""
    async with store.memory() as memory:
        await write_chat(memory, who, other := new_id(), "mine")
    lines = await store.read_lines(other)
    for number in range(3):
        await store.write_line(chat_id, number + 1, lines[number])


async def omit_lines(store: Store, chat_id: str, who: Identity) -> None:
    lines = await store.read_lines(chat_id)
    for number in (2, 3):
        await store.write_line(chat_id, number, lines[number])


@pytest.mark.parametrize("who", [EVE, BOB], ids=["colleague", "other tenant"])
@pytest.mark.parametrize(
    "attack",
    [
        *(plain_first, plain_last, all_plain, first_of_another, first_two_of_another, first_of_another_and_rubbish),
        *(another_chat, omit_lines),
    ],
)
async def test_an_inauthentic_line_is_reported_as_damage_and_reveals_nothing(
    store: Store, env: dict[str, str], attack: Callable[[Store, str, Identity], Awaitable[None]], who: Identity
) -> None:
    chat_id, other = new_id(), new_id()
    async with store.memory() as memory:
        await write_chat(memory, ADA, chat_id, "secret")
        await write_chat(memory, ADA, other, "others")
    await attack(store, chat_id, who)
    async with store.memory() as memory:
        with acting_as(who):
            with suppress(LogDamaged, NotFound):
                assert "secret" not in str(await memory.chat(chat_id=chat_id))
            assert await memory.search("secret") == []
        if "plain" in attack.__name__:
            for reader in (ADA, who):
                with acting_as(reader), pytest.raises(LogDamaged):
                    await memory.chat(chat_id=chat_id)
        for writer in (ADA, who):
            with acting_as(writer), pytest.raises(HeadraceError) as refused:
                await memory.append(chat_id, new_id(), query_line("more"))
            assert isinstance(refused.value, LogDamaged | NotFound)
        assert "others" in str(await memory.acting_as(ADA).chat(chat_id=other))
    printed = await run(env, "verify", status=1)
    assert chat_id in printed
    assert other not in printed


async def test_a_line_from_an_earlier_version_of_the_chat_is_detected(store: Store, env: dict[str, str]) -> None:
    """The chat was restored from a copy, continued differently, and then gets a line of its former version."""
    with acting_as(ADA):
        async with store.memory() as memory:
            chat_id, _ = await memory.begin_and_end("one")
            await memory.begin_and_end("two", chat_id)
        lines = await store.read_lines(chat_id)
        if isinstance(store.kept, Files):
            (store.kept.folder / f"{chat_id}.json").write_bytes(b"".join(line + b"\n" for line in lines[:2]))
        else:
            await store.run("DELETE FROM lines USING chats WHERE chats.id = chat AND chat_id = $1 AND n > 2", chat_id)
        async with store.memory() as memory:
            await memory.begin_and_end("otherwise", chat_id)
        await run(env, "verify")
        await store.write_line(chat_id, 4, lines[3])
        assert f"{chat_id}: line 4 " in await run(env, "verify", status=1)
        async with store.memory() as memory:
            with pytest.raises(LogDamaged):
                await memory.begin("more", chat_id)


async def age(store: Store, chat_id: str, *, plain: int = 0) -> None:
    """Rewrite a chat as an older version stored it: `plain` lines unencrypted, the others encrypted, but not sealed."""
    log = (await store.kept.log(chat_id)).splitlines()
    async with open_engine(store.kept) as engine:
        for number, line in enumerate(log, 1):
            if number > plain:
                context, text = b"line\0" + chat_id.encode(), remove_checksum(line)
                line = add_checksum(engine.rewriting.keys.encrypt_line("acme", context, number, text))
            await store.write_line(chat_id, number, line)


async def set_goal(store: Store, goal: str) -> None:
    if isinstance(store.kept, Files):
        FileDataKeys(store.kept.folder / FOLDER).write_goal(goal)
    else:
        await store.run("UPDATE encryption_goal SET goal = $1", goal)


@pytest.mark.parametrize("plain", [0, 2, 4])
async def test_chats_of_an_older_version_are_read_and_then_sealed_by_reencrypt(
    store: Store, env: dict[str, str], plain: int
) -> None:
    chats = [new_id(), new_id()]
    async with store.memory() as memory:
        for chat_id in chats:
            await write_chat(memory, ADA, chat_id, "words")
    for chat_id in chats:
        await age(store, chat_id, plain=plain)
    await set_goal(store, "encrypted 0123456789abcdef")
    assert "8 of them not sealed yet" in await run(env, "verify")
    strict = env | {"HEADRACE_MEMORY_ENCRYPTION_STRICT": "true"}
    assert f"{chats[0]}: " in await run(strict, "verify", status=1), "an operator trusts no store's own word"
    with acting_as(ADA):
        async with store.memory() as memory:
            assert "words 1" in str(await memory.chat(chat_id=chats[0]))
            await memory.begin_and_end("goes on", chats[0])
        assert list(map(is_sealed_line, await store.read_lines(chats[0]))) == [False] * 4 + [True] * 2
        assert "none left" in await run(env, "reencrypt")
        assert all(map(is_sealed_line, await store.read_lines(chats[0])))
        await run(strict, "verify")
        async with store.memory() as memory:
            assert "words 1" in str(await memory.chat(chat_id=chats[0]))
            await memory.begin_and_end("and on", chats[0])
    await run(strict, "verify")
    await plain_first(store, chats[0], EVE)
    assert f"{chats[0]}: " in await run(env, "verify", status=1)


async def test_a_key_opens_only_the_chats_of_its_own_tenant(store: Store, env: dict[str, str]) -> None:
    """This also holds where lines are not sealed yet, so that a plain line may precede them."""
    chat_id = new_id()
    async with store.memory() as memory:
        await write_chat(memory, ADA, chat_id, "secret")
    await age(store, chat_id)
    await set_goal(store, "")
    await plain_first(store, chat_id, BOB)
    async with store.memory() as memory:
        with acting_as(BOB):
            assert "secret 1" not in str(await memory.chat(chat_id=chat_id))
    assert "a key of another tenant" in await run(env, "verify", status=1)


async def test_a_chat_continues_while_encryption_is_switched_off_and_on(store: Store, env: dict[str, str]) -> None:
    plain = store.with_keys(opening(encrypts=False))
    with acting_as(ADA):
        async with store.memory() as memory:
            chat_id, _ = await memory.begin_and_end("sealed")
        for current_store in (plain, store, plain, store):
            async with current_store.memory() as memory:
                assert "sealed" in str(await memory.chat(chat_id=chat_id))
                await memory.begin_and_end("more", chat_id)
        assert "none left" in await run(env, "reencrypt")
        assert all(map(is_sealed_line, await store.read_lines(chat_id)))
        await run(env, "verify")


async def test_services_over_one_database_extend_the_same_chain(store: Store, env: dict[str, str]) -> None:
    if isinstance(store.kept, Files):
        pytest.skip("a folder has one service")
    with acting_as(ADA):
        async with store.memory() as one, store.memory() as other:
            chat_id, _ = await one.begin_and_end("first")
            for memory in (other, one, one, other):
                await memory.begin_and_end("more", chat_id)
            await run(env, "rotate-keys")
            assert "none left" in await run(env, "reencrypt")
            for memory in (other, one, one, other):
                await memory.begin_and_end("more", chat_id)
    await run(env, "verify")


async def test_an_append_that_lost_a_block_in_its_middle_is_set_aside(folder: Path) -> None:
    store = Store(Files(folder, open_keys), None)
    with acting_as(ADA):
        async with store.memory() as memory:
            chat_id, run_id = await memory.begin("whole")
            path = folder / f"{chat_id}.json"
            whole = path.read_bytes()
            await memory.append(chat_id, run_id, *(step_line(user(word)) for word in ("one", "two", "three")))
        lines = path.read_bytes()[len(whole) :].split(b"\n")
        for lost in range(3):
            cut = [b"\0" * len(line) if index == lost else line for index, line in enumerate(lines)]
            path.write_bytes(whole + b"\n".join(cut))
            async with store.memory() as memory:
                text = str(await memory.chat(chat_id=chat_id))
                assert ("whole" in text, "three" in text) == (True, False)
                await memory.append(chat_id, run_id, step_line(user("goes on")))
            path.write_bytes(whole)
