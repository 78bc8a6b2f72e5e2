"""Reading a context's messages again: by line, by words, and by call."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest, NotFound
from headrace.v1 import llm_pb2, memory_pb2
from services.memory.context.history_reader import cut_middle
from services.memory.log.media import BYTES_MAX, PARTS_MAX, SCHEME, Blob, read_media
from tests.support.memory.messages import call, content, result, user
from tests.support.memory.summarising import LIMITS
from tests.support.memory.writing import Memory, new_id, query_line, run_line, step_line

AGENT = "subagent-0a0b0c0d"


async def read_lines(memory: Memory, chat_id: str, run_id: str, **fields: Any) -> memory_pb2.ReadHistoryResponse:
    return await memory.call("ReadHistory", chat_id=chat_id, run_id=run_id, **fields)


async def read_part(memory: Memory, chat_id: str, run_id: str, **fields: Any) -> memory_pb2.ReadResultResponse:
    return await memory.call("ReadResult", chat_id=chat_id, run_id=run_id, **fields)


def to_rows(found: memory_pb2.ReadHistoryResponse) -> list[tuple[int, str, str]]:
    return [(message.n, message.role, message.text) for message in found.messages]


async def fill_chat(memory: Memory, runs: int) -> tuple[str, str]:
    """Write runs of three lines each that contain their number, and begin one more."""
    chat_id = new_id()
    for index in range(runs):
        _, run_id = await memory.begin(f"question {index}", chat_id)
        answer = step_line(call(f"c{index}"), result(f"c{index}", f"rain {index}"), content(f"answer {index}"))
        await memory.append(chat_id, run_id, answer, run_line())
    return await memory.begin("and now?", chat_id)


async def test_lines_of_any_age_are_read_in_order(memory: Memory) -> None:
    chat_id, run_id = await fill_chat(memory, 30)
    found = await read_lines(memory, chat_id, run_id, first_n=1, last_n=5)
    assert to_rows(found) == [
        (1, "user", "question 0"),
        (2, "assistant", ""),
        (2, "tool", "rain 0"),
        (2, "assistant", "answer 0"),
        (4, "user", "question 1"),
        (5, "assistant", ""),
        (5, "tool", "rain 1"),
        (5, "assistant", "answer 1"),
    ]
    message_with_call = found.messages[1]
    assert [tool_call.id for tool_call in message_with_call.tool_calls] == ["c0"]
    assert found.messages[2].tool_call_id == "c0"
    assert (found.next_n, found.left_out) == (0, 0)


async def test_a_query_finds_messages_anywhere_with_the_most_matching_words_first(memory: Memory) -> None:
    chat_id, run_id = await fill_chat(memory, 30)
    assert to_rows(await read_lines(memory, chat_id, run_id, query="RAIN 17"))[0] == (53, "tool", "rain 17")
    assert not (await read_lines(memory, chat_id, run_id, query="hurricane")).messages


CHITCHAT = "What do we do about this in the morning, how much is it, and which of the ropes is the first? "
QUESTION = "How much is the deviation of the compass, and in which direction is it?"


async def test_a_whole_question_finds_the_message_with_its_rare_words(memory: Memory) -> None:
    chat_id, run_id = await memory.begin("The compass has a deviation of 4.25 degrees.")
    for _ in range(20):
        await memory.append(chat_id, run_id, step_line(content(CHITCHAT)), run_line())
        _, run_id = await memory.begin(CHITCHAT, chat_id)
    found = (await read_lines(memory, chat_id, run_id, query=QUESTION)).messages
    assert found[0].text.endswith("4.25 degrees.")


async def test_the_excerpt_of_a_long_message_contains_the_rarest_word_of_the_query(memory: Memory) -> None:
    chat_id, run_id = await memory.begin(CHITCHAT * 20 + "Compass: 4.25 degrees. " + CHITCHAT * 20)
    await memory.append(chat_id, run_id, step_line(content("Which direction, this morning? " + CHITCHAT)), run_line())
    _, run_id = await memory.begin("and now?", chat_id)
    question = "In the morning, what did the compass say?"
    messages = (await read_lines(memory, chat_id, run_id, query=question, chars_max=2000)).messages
    assert "4.25 degrees" in messages[0].text


@pytest.mark.parametrize("safe", ["safe", "s\\u0061fe"])
async def test_a_search_finds_call_arguments_but_not_itself_or_earlier_searches(memory: Memory, safe: str) -> None:
    chat_id, run_id = await memory.begin()
    write_call = call("c1", f'{{"text":"the {safe} is blue"}}', name="file_write")
    search_call = call("c2", '{"query":"safe"}', name="read_history", msg_id="m_00000002")
    found = result("c2", "[2] assistant: the safe is blue", name="read_history")
    await memory.append(chat_id, run_id, step_line(write_call, result("c1"), search_call, found))
    messages = (await read_lines(memory, chat_id, run_id, query="safe")).messages
    assert [message.tool_calls[0].id for message in messages] == ["c1"]


@pytest.mark.parametrize("before", ["a ", "ß ", "ﬁ", "İ"])
async def test_the_excerpt_of_a_long_message_contains_the_words_and_their_surroundings(
    memory: Memory, before: str
) -> None:
    long = before * (10_000 // len(before))
    chat_id, run_id = await memory.begin("İ " + long + "the safe opens with 7713 " + "b " * 5000)
    await memory.append(chat_id, run_id, step_line(content("a safe, noted")))
    message = (await read_lines(memory, chat_id, run_id, query="opens safe", chars_max=1000)).messages[0]
    assert "the safe opens with 7713" in message.text
    assert len(message.text) < 400
    assert message.chars == 20_027


async def test_a_limited_reply_says_what_it_left_out_and_where_to_continue(memory: Memory) -> None:
    chat_id, run_id = await fill_chat(memory, 30)
    rows: list[tuple[int, str, str]] = []
    first_n = 1
    while first_n:
        found = await read_lines(memory, chat_id, run_id, first_n=first_n, chars_max=100)
        assert found.messages[0].n >= first_n
        rows += [row for row in to_rows(found) if row not in rows]
        assert bool(found.left_out) == bool(found.next_n)
        first_n = found.next_n
    assert rows == to_rows(await read_lines(memory, chat_id, run_id, chars_max=100_000))


async def test_a_long_message_is_returned_whole_if_it_is_requested_alone(memory: Memory) -> None:
    long = "".join(f"{index:06}" for index in range(2000))
    chat_id, run_id = await memory.begin_with(step_line(content("noted")), message=long)
    cut = (await read_lines(memory, chat_id, run_id)).messages[0]
    assert cut.chars == 12_000
    assert cut.text.startswith("000000")
    assert cut.text.endswith("001999")
    assert "characters left out" in cut.text
    assert len(cut.text) < 2600
    assert (await read_lines(memory, chat_id, run_id, first_n=1, last_n=1, chars_max=12_000)).messages[0].text == long


async def test_a_result_is_read_in_parts_and_the_latest_of_an_id_counts(memory: Memory) -> None:
    chat_id, run_id = await memory.begin()
    long = "".join(f"{index:06}" for index in range(5000))
    await memory.append(chat_id, run_id, step_line(call("c1"), result("c1", "old")))
    second_call = call("c1", msg_id="m_00000002")
    await memory.append(chat_id, run_id, step_line(second_call, result("c1", long)))
    parts = [
        await read_part(memory, chat_id, run_id, tool_call_id="c1", offset=offset)
        for offset in range(0, 40_000, 10_000)
    ]
    assert "".join(part.text for part in parts) == long
    assert {(part.chars, part.n, part.name) for part in parts} == {(30_000, 3, "weather")}


async def test_a_result_of_an_unknown_call_and_numbers_out_of_bounds_are_rejected(memory: Memory) -> None:
    chat_id, run_id = await memory.begin_with(step_line(call("c1")))
    with pytest.raises(NotFound, match="'c1'"):
        await read_part(memory, chat_id, run_id, tool_call_id="c1")
    for fields in ({"first_n": -1}, {"last_n": -1}, {"chars_max": -1}, {"chars_max": 100_001}):
        with pytest.raises(InvalidRequest):
            await read_lines(memory, chat_id, run_id, **fields)
    with pytest.raises(InvalidRequest):
        await read_part(memory, chat_id, run_id, tool_call_id="c1", offset=-1)
    with pytest.raises(NotFound, match="run"):
        await read_lines(memory, chat_id, new_id())


async def test_a_run_sees_no_later_run_and_a_sub_agent_only_its_own_messages(memory: Memory) -> None:
    chat_id, run_id = await fill_chat(memory, 1)
    await memory.append(chat_id, run_id, step_line(user("sub-task"), context_id=AGENT))
    await memory.append(chat_id, later := new_id(), query_line("later"))
    assert [text for *_, text in to_rows(await read_lines(memory, chat_id, run_id))][-1] == "and now?"
    assert [text for *_, text in to_rows(await read_lines(memory, chat_id, later))][-1] == "later"
    assert to_rows(await read_lines(memory, chat_id, run_id, context_id=AGENT)) == [(5, "user", "sub-task")]


async def test_reverted_messages_are_not_found(memory: Memory) -> None:
    chat_id, run_id = await fill_chat(memory, 2)
    await memory.append(chat_id, run_id, run_line())
    await memory.revert(chat_id, 2)
    chat_id, run_id = await memory.begin("go on", chat_id)
    texts = [text for *_, text in to_rows(await read_lines(memory, chat_id, run_id))]
    assert "question 0" in texts
    assert "question 1" not in texts


async def test_an_image_is_replaced_by_its_description(memory: Memory) -> None:
    chat_id, run_id = await memory.begin()
    image_result = result("c1", "here it is")
    image_result.message.content.add(image=llm_pb2.ImagePart(url="data:image/png;base64,aGk="))
    await memory.append(chat_id, run_id, step_line(call("c1"), image_result))
    found = await read_part(memory, chat_id, run_id, tool_call_id="c1")
    assert found.text == "here it is[image]", "the call itself shows it, or says why not"
    lines = (await read_lines(memory, chat_id, run_id, first_n=2)).messages
    assert 'here it is[image, read_result "c1" shows it again]' in [line.text for line in lines]


def make_picture(number: int) -> llm_pb2.ContentPart:
    return llm_pb2.ContentPart(image=llm_pb2.ImagePart(data=b"\x89PNG" + bytes([number]), mime_type="image/png"))


async def test_images_that_have_left_the_window_can_be_read_again(memory: Memory) -> None:
    """One in a user's message and one in a result of an earlier run."""
    chat_id, run_id = await memory.begin()
    message_with_image, result_with_image = user("look at this", make_picture(1)), result("c1", "here it is")
    result_with_image.message.content.append(make_picture(2))
    result_with_image.message.content.add(image=llm_pb2.ImagePart(url="https://example.org/cat.png"))
    await memory.append(
        chat_id, run_id, step_line(message_with_image), step_line(call("c1"), result_with_image), run_line()
    )
    _, run_id = await memory.begin("go on", chat_id)
    loaded = await memory.call("LoadContext", chat_id=chat_id, run_id=run_id, limits=LIMITS)
    text = "".join(part.text for message in loaded.messages for part in message.content)
    assert "[image, read_history 2 shows it again]" in text
    assert '[image, read_result "c1" shows it again]' in text
    assert loaded.has_left, "the tools for it are offered"
    found = await read_part(memory, chat_id, run_id, tool_call_id="c1")
    assert list(found.media) == [make_picture(2)]
    assert list((await read_lines(memory, chat_id, run_id, first_n=2, last_n=2)).media) == [make_picture(1)]
    assert not (await read_lines(memory, chat_id, run_id)).media, "of one line at a time"
    assert not (await read_part(memory, chat_id, run_id, tool_call_id="c1", offset=5)).media


async def test_images_beyond_a_requests_maximum_can_be_read_again(memory: Memory) -> None:
    chat_id, run_id = await memory.begin()
    for number in range(PARTS_MAX + 1):
        image_result = result(f"c{number}", "seen")
        image_result.message.content.append(make_picture(number))
        await memory.append(chat_id, run_id, step_line(call(f"c{number}", msg_id=new_id()), image_result))
    large = memory_pb2.ModelLimits(provider_key="p", model="gpt-4o", context_window_tokens=200_000)
    loaded = await memory.call("LoadContext", chat_id=chat_id, run_id=run_id, limits=large)
    (text,) = {part.text for message in loaded.messages for part in message.content if '"c0"' in part.text}
    assert text == '[image, read_result "c0" shows it again]: shown in an earlier turn'
    assert loaded.has_left
    assert list((await read_part(memory, chat_id, run_id, tool_call_id="c0")).media) == [make_picture(0)]


def test_the_media_of_a_line_are_bounded_together() -> None:
    blobs = {f"{number:064x}": Blob.create("image/png", bytes([number]) * (BYTES_MAX // 2)) for number in range(3)}
    messages = [
        llm_pb2.Message(content=[llm_pb2.ContentPart(image=llm_pb2.ImagePart(url=f"{SCHEME}{blob_id}"))])
        for blob_id in blobs
    ]
    media = read_media(messages, blobs.get)
    assert [part.image.data[0] for part in media] == [1, 2], "the newest"


@given(st.text(max_size=300), st.integers(1, 100))
def test_a_shortened_text_keeps_its_head_and_tail(text: str, chars_max: int) -> None:
    cut = cut_middle(text, chars_max)
    head, note, tail = cut.partition("\n[… ") if len(text) > chars_max else (text, "", "")
    assert text.startswith(head)
    assert not note or text.endswith(tail.partition(" …]\n")[2])
    assert len(text) <= chars_max or len(head) + len(tail.partition(" …]\n")[2]) == chars_max
