"""OpenAI's own renderer of prompts for gpt-oss: on each line of stdin the chat completions of a conversation, on each
line of stdout the prompt of each, or the error.

The conversion follows OpenAI's guide for servers of its open models: instructions are the developer's, thoughts go into
the channel `analysis`, calls into `commentary` with their tool as recipient. The vocabulary is in the folder that
TIKTOKEN_ENCODINGS_BASE names; without it the package would download it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from openai_harmony import (
    Author,
    Conversation,
    DeveloperContent,
    HarmonyEncodingName,
    Message,
    Role,
    StreamableParser,
    SystemContent,
    ToolDescription,
    load_harmony_encoding,
)

ENCODING = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)


def join_text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def convert_answer(message: dict[str, Any]) -> Iterator[Message]:
    if thought := message.get("reasoning_content"):
        yield Message.from_role_and_content(Role.ASSISTANT, thought).with_channel("analysis")
    calls = message.get("tool_calls") or []
    if text := join_text(message.get("content")):
        yield Message.from_role_and_content(Role.ASSISTANT, text).with_channel("commentary" if calls else "final")
    for call in calls:
        arguments = Message.from_role_and_content(Role.ASSISTANT, call["function"]["arguments"])
        recipient = f"functions.{call['function']['name']}"
        yield arguments.with_channel("commentary").with_recipient(recipient).with_content_type("<|constrain|>json")


def convert(body: dict[str, Any]) -> Iterator[Message]:
    yield Message.from_role_and_content(Role.SYSTEM, SystemContent.new())
    instructions = "\n\n".join(
        join_text(message["content"]) for message in body["messages"] if message["role"] == "system"
    )
    functions = [tool["function"] for tool in body.get("tools") or ()]
    tools = [
        ToolDescription.new(function["name"], function.get("description", ""), function.get("parameters"))
        for function in functions
    ]
    developer = DeveloperContent.new().with_instructions(instructions)
    yield Message.from_role_and_content(Role.DEVELOPER, developer.with_function_tools(tools) if tools else developer)
    names: dict[str, str] = {}
    for message in body["messages"]:
        match message["role"]:
            case "user":
                yield Message.from_role_and_content(Role.USER, join_text(message["content"]))
            case "assistant":
                names |= {call["id"]: call["function"]["name"] for call in message.get("tool_calls") or ()}
                yield from convert_answer(message)
            case "tool":
                author = Author.new(Role.TOOL, f"functions.{names[message['tool_call_id']]}")
                result = Message.from_author_and_content(author, join_text(message["content"]))
                yield result.with_channel("commentary").with_recipient("assistant")
            case _:
                pass


def list_texts(messages: list[Message]) -> list[tuple[str, str]]:
    """List role and text of each message after the first two, without thoughts: those before an answer are dropped."""
    messages_shown = [message for message in messages[2:] if message.channel != "analysis"]
    return [(message.author.role.value, message.content[0].text) for message in messages_shown]


def judge(body: dict[str, Any]) -> dict[str, str]:
    try:
        messages = [*convert(body)]
        tokens = ENCODING.render_conversation_for_completion(Conversation.from_messages(messages), Role.ASSISTANT)
        parser = StreamableParser(ENCODING, role=None)
        for token in tokens:
            parser.process(token)
        is_same = list_texts(parser.messages) == list_texts(messages)
        return {"error": "" if is_same else "its parser reads other messages", "prompt": ENCODING.decode_utf8(tokens)}
    except Exception as error:  # whatever it raises is its verdict
        return {"error": f"{type(error).__name__}: {error}", "prompt": ""}


for line in sys.stdin:
    print(json.dumps([judge(body) for body in json.loads(line)]), flush=True)
