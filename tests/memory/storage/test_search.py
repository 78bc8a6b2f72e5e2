"""Search and facts: any script, ranked, in the requested scope, and after a restart."""

import asyncio

import pytest

from headrace.errors import InvalidRequest
from headrace.v1 import memory_pb2
from tests.support.memory.engines import Serve
from tests.support.memory.messages import content, reasoning, result, user
from tests.support.memory.writing import Memory, new_id, query_line, run_line, step_line

pytestmark = pytest.mark.engines


def insight(text: str) -> memory_pb2.LogLine:
    return memory_pb2.LogLine(insight=memory_pb2.NoteLine(text=text))


async def add_chat(memory: Memory, question: str, *lines: memory_pb2.LogLine) -> str:
    chat_id = new_id()
    await memory.append(chat_id, new_id(), query_line(question), *lines, run_line())
    return chat_id


async def search_chat_ids(memory: Memory, query: str, scope: str = "") -> list[str]:
    return [hit.chat_id for hit in await memory.search(query, scope)]


@pytest.mark.engines("encrypted", "encrypted postgres")
@pytest.mark.parametrize("restart", [False, True])
async def test_words_of_questions_and_answers_are_found(serve: Serve, restart: bool) -> None:
    async with serve() as memory:
        mill = await add_chat(
            memory, "How does a water mill work?", step_line(content("The headrace feeds the wheel."))
        )
        bread = await add_chat(memory, "Bread recipe", step_line(content("Flour, water, salt."), user("and yeast?")))
        if not restart:
            assert await search_chat_ids(memory, "HEADRACE") == [mill]
    async with serve() as memory:
        assert await search_chat_ids(memory, "headrace") == [mill]
        assert await search_chat_ids(memory, "yeast") == [bread]
        assert set(await search_chat_ids(memory, "water")) == {mill, bread}
        assert await search_chat_ids(memory, "zebra") == []
        hit = (await memory.search("wheel"))[0]
        assert hit.excerpt == "The headrace feeds the wheel."
        assert hit.run_id


async def test_a_text_with_more_of_the_words_ranks_higher(memory: Memory) -> None:
    lower_id = await add_chat(memory, "granite is a stone, as everyone knows")
    higher_id = await add_chat(memory, "granite mills grind with stone")
    await add_chat(memory, "nothing of the kind")
    hits = await memory.search("granite mills")
    assert [hit.chat_id for hit in hits] == [higher_id, lower_id]
    assert hits[0].score > hits[1].score


@pytest.mark.parametrize(
    "query",
    [
        *("水车", "水", "水车的历史", "水车的历史很长吗", "한국어", "ひらがな", "カタカナ", "ё", "Ök", "a_b", "100%"),
        *("🎵", "🐽", "➡\ufe0f", "👩🏽\u200d💻", "€"),
    ],
)
async def test_any_script_is_found_by_any_part(memory: Memory, query: str) -> None:
    text = "古代水车的历史。한국어를 배우다 ひらがなとカタカナ Ёлка ÖKO 'a_b' 100% 🐽🎵➡👩🏽\u200d💻 5€"
    chat_id = await add_chat(memory, text)
    await add_chat(memory, "something else")
    assert await search_chat_ids(memory, query) == [chat_id]


@pytest.mark.parametrize("query", ["สวัสดี", "ที่", "हिन्दी", "नदी", "cafe\u0301"])
async def test_a_vowel_sign_is_part_of_its_word(memory: Memory, query: str) -> None:
    chat_id = await add_chat(memory, "สวัสดีที่นี่ हिन्दी नदी cafe\u0301")
    await add_chat(memory, "another: ส ว ด ท น ह द न cafe")
    assert await search_chat_ids(memory, query) == [chat_id]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("caf\u00e9", "cafe\u0301 au lait"),
        ("Vie\u0323\u0302t", "VI\u1ec6T NAM"),
        ("\u1112\u1161\u11ab\u1100\u116e\u11a8", "\ud55c\uad6d"),
        *(("istanbul", "İSTANBUL"), ("İstanbul", "ISTANBUL"), ("STRASSE", "Straße"), ("don't", "I don’t")),
    ],
)
async def test_a_letter_is_found_in_any_of_its_forms(memory: Memory, query: str, text: str) -> None:
    chat_id = await add_chat(memory, f"In {text} it was.")
    await add_chat(memory, "Elsewhere.")
    assert await search_chat_ids(memory, query) == [chat_id]


async def test_characters_of_the_query_language_are_treated_as_text(memory: Memory) -> None:
    chat_id = await add_chat(memory, 'say "NEAR(" AND NOT x*')
    for query in ('"', "AND", 'NEAR("', "*", "a AND b OR", "'; DROP TABLE texts", "\\", "%", "_", "(((", "text:x"):
        await memory.search(query)
    assert await search_chat_ids(memory, "NEAR AND") == [chat_id]
    assert await search_chat_ids(memory, "%") == await search_chat_ids(memory, "...") == []


async def test_a_scope_searches_one_kind_of_text(memory: Memory) -> None:
    chat_id = await add_chat(memory, "cucumber", insight("cucumber salad needs salt"), insight("other"))
    assert [hit.excerpt for hit in await memory.search("cucumber", "insights")] == ["cucumber salad needs salt"]
    assert [hit.excerpt for hit in await memory.search("cucumber", "chats")] == ["cucumber"]
    assert await memory.search("cucumber", "summaries") == []
    assert await search_chat_ids(memory, "cucumber", "all") == [chat_id, chat_id]


async def test_tool_results_and_reasoning_are_not_searched(memory: Memory) -> None:
    await add_chat(memory, "q", step_line(reasoning("pondering"), content("x"), result("t1", "pondering")))
    assert await memory.search("pondering") == []


@pytest.mark.parametrize("before", ["x ", "ß ", "İ ", "e\u0301 "])
async def test_an_excerpt_shows_the_text_around_the_match(memory: Memory, before: str) -> None:
    await add_chat(memory, before * 5000 + "needle\n\nin  hay " + "y " * 5000)
    (hit,) = await memory.search("needle")
    assert "needle in hay" in hit.excerpt
    assert hit.excerpt.startswith("…")
    assert hit.excerpt.endswith("…")
    assert len(hit.excerpt) <= 162


async def test_the_number_of_hits_is_bounded(memory: Memory) -> None:
    for index in range(30):
        await add_chat(memory, f"pebble {index}")
    assert len(await memory.search("pebble")) == 20
    assert len(await memory.search("pebble", limit=3)) == 3
    assert len(await memory.search("pe", limit=100)) == 30
    for limit in (-1, 101):
        with pytest.raises(InvalidRequest):
            await memory.search("pebble", limit=limit)


async def test_a_deleted_chat_is_not_found(memory: Memory) -> None:
    chat_id = await add_chat(memory, "cucumber")
    await memory.delete(chat_id)
    assert await memory.search("cucumber") == []


async def test_facts_are_remembered_once_by_request(serve: Serve) -> None:
    async with serve() as memory:
        fact_id = await memory.remember("prefers metric units", "r1")
        assert await memory.remember("prefers metric units", "r1") == fact_id
        assert await memory.remember("prefers metric units") == fact_id, "in the same words"
        async with asyncio.timeout(100):
            ids = await asyncio.gather(*(memory.remember("likes tea", "r2") for _ in range(10)))
        assert len(set(ids)) == 1
    async with serve() as memory:
        assert await memory.remember("whatever", "r1") == fact_id
        hits = await memory.search("metric")
        assert [(hit.chat_id, hit.run_id, hit.excerpt) for hit in hits] == [("", "", "prefers metric units")]
        assert await memory.search("metric", "chats") == []
        assert len(await memory.search("tea")) == 1
