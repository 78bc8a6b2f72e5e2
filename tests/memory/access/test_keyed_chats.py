"""Chats that a user opens by a key: no other user can open one under its id."""

import pytest

from headrace.errors import InvalidRequest
from services.runtime.auth.access import find_keyed_chat
from services.runtime.auth.identity import Identity, acting_as
from tests.support.memory.writing import Memory, run_line

pytestmark = pytest.mark.engines

ADA, BOB, ELSE = Identity("acme", "ada"), Identity("acme", "bob"), Identity("else", "ada")
MAIN = find_keyed_chat(ADA, "main")


@pytest.mark.parametrize("who", [BOB, ELSE])
@pytest.mark.parametrize("query", [{}, {"chat_key": "main"}, {"chat_key": "other"}])
async def test_no_other_user_opens_a_chat_under_the_id_of_a_key(
    memory: Memory, who: Identity, query: dict[str, str]
) -> None:
    with acting_as(who), pytest.raises(InvalidRequest, match="chatId"):
        await memory.begin("Mine now", MAIN, **query)
    with acting_as(ADA):
        await memory.begin_with(run_line(), message="Mine", chat_id=MAIN, chat_key="main")
        await memory.begin("More", MAIN)
        await memory.call_as(ADA, "ShareChat", chat_id=MAIN, participants=["user:bob"])
    with acting_as(BOB):
        assert (await memory.chat(chat_id=MAIN)).owner == "ada"


def test_each_pair_of_user_and_key_has_its_own_chat_id() -> None:
    pairs = [
        (Identity(tenant, user), key) for tenant in ("a", "ab") for user in ("", "b", "bb") for key in ("", "b", "c")
    ]
    ids = {find_keyed_chat(who, key) for who, key in pairs}
    assert len(ids) == len(pairs)
    assert {chat_id[14] for chat_id in ids} == {"8"}
