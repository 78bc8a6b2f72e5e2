"""The messages of a context, as tests compare them."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from headrace.v1 import llm_pb2, memory_pb2
from tests.support.memory.messages import call, content, reasoning, result, user
from tests.support.memory.writing import Memory


def to_tuples(messages: Sequence[llm_pb2.Message]) -> list[Any]:
    """Return messages as short tuples: role, text, and the calls or the id of the answered call."""
    return [
        (message.role, text_of(message))
        + ((tuple((call.id, call.arguments) for call in message.tool_calls),) if message.tool_calls else ())
        + ((message.tool_call_id,) if message.role == "tool" else ())
        for message in messages
    ]


def text_of(message: llm_pb2.Message) -> str:
    return "".join(part.text for part in message.content)


async def list_texts(memory: Memory, chat_id: str, run_id: str, **fields: Any) -> list[str]:
    """Return the text of each message of a run's context."""
    return [text_of(message) for message in await memory.context(chat_id, run_id, **fields)]


def check_paired(messages: Sequence[llm_pb2.Message]) -> None:
    """Assert what every provider requires: each call is followed by exactly its result."""
    remaining = list(messages)
    while remaining:
        message = remaining.pop(0)
        assert message.role != "tool", "a result without its call"
        assert message.content or message.tool_calls
        results, remaining = remaining[: len(message.tool_calls)], remaining[len(message.tool_calls) :]
        assert [answer.role for answer in results] == ["tool"] * len(message.tool_calls)
        assert [answer.tool_call_id for answer in results] == [call.id for call in message.tool_calls]
        assert all(answer.content and answer.name for answer in results)


def left_out(first_n: int, last_n: int) -> str:
    lines = f"{first_n}-{last_n}"
    return f"[Lines {lines} of this chat are left out here, without a summary: read_history {lines} has them.]"


call_ids = st.sampled_from(["t1", "t2", "t3", ""])


msg_ids = st.sampled_from(["m_00000001", "m_00000002", "m_00000003"])


log_messages = st.one_of(
    st.builds(content, st.sampled_from(["text", ""]), msg_id=msg_ids),
    st.builds(reasoning, st.just("hm"), msg_id=msg_ids),
    st.builds(call, call_ids, msg_id=msg_ids),
    st.builds(result, call_ids, st.just("r" * 1200)),
    st.builds(user, st.just("steer")),
)


WORDS = "one two three four five six seven eight nine ten "


def limits(
    window: int = 128_000, output: int = 1_000, model: str = "gpt-4o", provider: str = "p"
) -> memory_pb2.ModelLimits:
    return memory_pb2.ModelLimits(
        provider_key=provider, model=model, context_window_tokens=window, output_tokens=output
    )


async def load(memory: Memory, chat_id: str, run_id: str, **fields: Any) -> memory_pb2.LoadContextResponse:
    given: dict[str, Any] = {"limits": limits()} | fields
    return await memory.call("LoadContext", chat_id=chat_id, run_id=run_id, **given)
