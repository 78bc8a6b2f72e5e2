"""Facts: scopes, topics, validity, edits, pages and ownership, on both engines."""

from typing import Any

import pytest

from headrace.errors import InvalidRequest, NotFound, PermissionDenied
from headrace.v1 import memory_pb2
from services.runtime.auth.identity import Identity, acting_as
from tests.support.memory.engines import Serve
from tests.support.memory.writing import Memory, new_id, read_pages

pytestmark = pytest.mark.engines

ADA, BOB, EVE = Identity("acme", "ada"), Identity("acme", "bob"), Identity("globex", "eve")


async def list_texts(memory: Memory, **fields: Any) -> list[str]:
    return [fact.text for fact in await memory.list_facts(**fields)]


async def test_a_fact_keeps_all_its_fields_over_a_restart(serve: Serve) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin()
        source = memory_pb2.FactSource(run_id=run_id, n=1)
        fact_id = await memory.remember(
            " lives in\0 Oslo ", topic=" home  town", scope="agent", agent_key="guide", source=source
        )
        (before,) = await memory.list_facts()
    async with serve() as memory:
        (fact,) = await memory.list_facts()
    assert fact == before
    assert (fact.fact_id, fact.text, fact.topic) == (fact_id, "lives in Oslo", "home town")
    assert (fact.scope, fact.agent_key) == ("agent", "guide")
    assert fact.source == memory_pb2.FactSource(chat_id=chat_id, run_id=run_id, n=1)
    assert fact.created_at == fact.updated_at > 0 == fact.ended_at == fact.deleted_at


@pytest.mark.parametrize("topic", ["Home Town", "home-town", "Hometown"])
async def test_a_newer_fact_on_a_topic_ends_the_older_one(memory: Memory, topic: str) -> None:
    old = await memory.remember("lives in Oslo", topic="home town")
    other = await memory.remember("lives in a tent here", topic="home town", scope="agent", agent_key="guide")
    new = await memory.remember("lives in Rome", topic=topic)
    assert await list_texts(memory) == ["lives in Rome", "lives in a tent here"]
    assert await memory.recall("Oslo") == []
    assert [hit.excerpt for hit in await memory.search("lives")] != []
    assert await memory.search("Oslo") == []
    everything = {fact.fact_id: fact for fact in await memory.list_facts(include_ended=True)}
    assert everything.keys() == {old, other, new}
    assert everything[old].replaced_by == new
    assert everything[old].ended_at == everything[new].created_at


@pytest.mark.parametrize(
    ("topic", "other", "is_same"),
    [
        *(("C++", "C#", False), ("C", "c#", False), ("Node.js", "node js", True)),
        # Father and address, which differ by a vowel sign; an accent as a character of its own.
        *(("पिता", "पता", False), ("café", "Cafe\u0301", True)),
    ],
)
async def test_topics_differ_by_letters_signs_and_symbols(
    memory: Memory, topic: str, other: str, is_same: bool
) -> None:
    await memory.remember("one", topic=topic)
    await memory.remember("two", topic=other)
    assert await list_texts(memory) == (["two"] if is_same else ["two", "one"])


@pytest.mark.parametrize(
    ("text", "fields", "is_same"),
    [
        ("likes tea", {}, True),
        (" Likes  tea. ", {"topic": "Drinks"}, True),
        ("likes tea", {"topic": "hobbies"}, False),
        ("likes tea", {"scope": "agent", "agent_key": "guide"}, False),
        ("likes teas", {}, False),
    ],
)
async def test_a_fact_that_is_said_again_is_kept_once(
    memory: Memory, text: str, fields: dict[str, str], is_same: bool
) -> None:
    """https://github.com/vshulcz/deja-vu/issues/1736 (2026-08)."""
    first = await memory.remember("likes tea", topic="drinks")
    again = await memory.remember(text, **fields)
    assert (again == first) == is_same
    assert len(await memory.list_facts()) == (1 if is_same else 2)
    await memory.delete_fact(first)
    assert await memory.remember("likes tea", topic="drinks") != first, "it is not restored, but learned again"


async def test_a_fact_ends_the_facts_it_replaces(memory: Memory) -> None:
    old = [await memory.remember(text) for text in ("likes tea", "likes milk")]
    with pytest.raises(NotFound):
        await memory.remember("likes coffee", replaces=[old[0], new_id()])
    await memory.remember("likes coffee", replaces=old)
    assert await list_texts(memory) == ["likes coffee"]


async def test_an_edited_fact_is_found_only_by_its_new_text(memory: Memory) -> None:
    fact_id, other = await memory.remember("likes tea"), await memory.remember("drinks a lot", topic="drink")
    changed = await memory.update_fact(fact_id, text="likes cocoa", topic="drink")
    assert (changed.text, changed.topic, changed.fact_id) == ("likes cocoa", "drink", fact_id)
    assert changed.updated_at >= changed.created_at
    assert await memory.recall("tea") == await memory.recall("a lot") == []
    assert await memory.recall("cocoa") == ["likes cocoa"]
    assert {fact.fact_id for fact in await memory.list_facts(include_ended=True) if fact.ended_at} == {other}
    for text in ("", " \0 "):
        with pytest.raises(InvalidRequest, match="text"):
            await memory.update_fact(fact_id, text=text)


@pytest.mark.engines("postgres")
async def test_a_deleted_fact_remains_as_a_tombstone(serve: Serve) -> None:
    async with serve() as memory:
        chat_id, _ = await memory.begin()
        source = memory_pb2.FactSource(chat_id=chat_id)
        fact_id = await memory.remember("likes tea", "r1", topic="drink", source=source)
        tombstone = await memory.delete_fact(fact_id)
        assert (tombstone.fact_id, tombstone.text, tombstone.topic, tombstone.HasField("source")) == (
            fact_id,
            "",
            "",
            False,
        )
        assert await memory.delete_fact(fact_id) == tombstone
    async with serve() as memory:
        assert await memory.list_facts(include_ended=True) == []
        assert await memory.recall("tea") == await memory.search("tea") == []
        assert await memory.remember("likes tea", "r1") == fact_id
        assert [(fact.fact_id, fact.deleted_at) for fact in await memory.export_facts()] == [
            (fact_id, tombstone.deleted_at)
        ]
        assert await memory.delete_fact(fact_id) == tombstone
        for call in (memory.update_fact(fact_id, text="x"), memory.delete_fact(new_id())):
            with pytest.raises(NotFound, match="does not exist"):
                await call


async def test_pages_list_each_fact_once_newest_first(memory: Memory) -> None:
    for index in range(5):
        await memory.remember(f"fact {index}")
    pages = await read_pages(memory, "ListFacts", "facts", 2)
    assert [[fact.text for fact in page] for page in pages] == [["fact 4", "fact 3"], ["fact 2", "fact 1"], ["fact 0"]]
    for fields in ({"page_token": "x"}, {"page_token": "-1"}, {"page_size": 201}):
        with pytest.raises(InvalidRequest):
            await memory.list_facts(**fields)


async def test_facts_are_listed_by_scope_or_together_with_those_of_an_agent(memory: Memory) -> None:
    await memory.remember("tea of the user")
    for agent in ("one", "two"):
        await memory.remember(f"tea of {agent}", scope="agent", agent_key=agent)
    assert await list_texts(memory, scope="agent") == ["tea of two", "tea of one"]
    assert await list_texts(memory, agent_key="one") == ["tea of one", "tea of the user"]
    assert await memory.recall("tea", agent_key="two") == ["tea of two", "tea of the user"]
    for fields in ({"scope": "agent"}, {"agent_key": "one"}, {"scope": "user", "agent_key": "one"}):
        with pytest.raises(InvalidRequest, match="agentKey"):
            await memory.remember("x", **fields)


async def test_a_fact_is_accessible_only_to_its_owner(memory: Memory) -> None:
    with acting_as(ADA):
        chat_id, _ = await memory.begin()
        fact_id = await memory.remember("ada likes tea")
    for who in (BOB, EVE):
        with acting_as(who):
            assert await memory.list_facts() == await memory.export_facts() == []
            assert await memory.recall("tea") == []
            source = memory_pb2.FactSource(chat_id=chat_id)
            for call in (
                memory.update_fact(fact_id, text="x"),
                memory.delete_fact(fact_id),
                memory.remember("x", replaces=[fact_id]),
                memory.remember("x", source=source),
            ):
                with pytest.raises(NotFound, match="does not exist"):
                    await call
    with acting_as(ADA):
        assert await list_texts(memory) == ["ada likes tea"]


async def test_tenant_facts_can_be_written_only_if_the_operator_allows_it(serve: Serve) -> None:
    async with serve() as memory:
        with acting_as(ADA), pytest.raises(PermissionDenied, match="HEADRACE_MEMORY_TENANT_FACTS"):
            await memory.remember("the office is in Oslo", scope="tenant")
    async with serve(tenant_facts=True) as memory:
        fact_id = await memory.acting_as(ADA).remember("the office is in Oslo", scope="tenant", topic="office")
        with acting_as(BOB):
            assert await memory.recall("office") == ["the office is in Oslo"]
            assert await memory.export_facts() == []
            await memory.remember("the office is in Rome", scope="tenant", topic="office")
        with acting_as(EVE):
            assert await memory.list_facts(include_ended=True) == []
            with pytest.raises(NotFound):
                await memory.delete_fact(fact_id)
        with acting_as(ADA):
            assert await list_texts(memory) == ["the office is in Rome"]
    async with serve() as memory:
        with acting_as(BOB):
            assert await list_texts(memory) == ["the office is in Rome"]
            with pytest.raises(PermissionDenied):
                await memory.delete_fact(fact_id)


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("What is my dog called?", "the user's dog is called Rex"),
        ("which sports do I like", "likes winter sports"),
        ("我的狗叫什么名字", "我的狗叫小白"),
        ("ÖKO", "kauft öko"),
        ("cats", "has a cat"),
    ],
)
async def test_the_fact_with_the_rarest_words_of_a_query_is_ranked_first(memory: Memory, query: str, best: str) -> None:
    for text in ("the user's dog is called Rex", "likes winter sports", "我的狗叫小白", "kauft öko", "has a cat"):
        await memory.remember(text)
    for index in range(10):
        await memory.remember(f"what the user is like, part {index}")
    assert (await memory.recall(query))[0] == best
    assert len(await memory.recall(query, limit=1)) == 1
    with pytest.raises(InvalidRequest):
        await memory.recall(query, limit=101)
