"""Helpers of the AG-UI tests."""

from typing import Any


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def fold(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the texts and calls of a stream, asserting that its events are in order."""
    contents: dict[str, Any] = {}
    is_open: set[str] = set()
    for event in events:
        key = event.get("toolCallId") or event.get("messageId", "")
        match event["type"]:
            case "TEXT_MESSAGE_START" | "REASONING_MESSAGE_START" | "TOOL_CALL_START":
                assert key not in is_open
                is_open.add(key)
                contents[key] = ""
            case "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" | "TOOL_CALL_ARGS":
                assert key in is_open
                contents[key] += event["delta"]
            case "TEXT_MESSAGE_END" | "REASONING_MESSAGE_END" | "TOOL_CALL_END":
                is_open.remove(key)
            case "TOOL_CALL_RESULT":
                contents[event["messageId"]] = event["content"]
            case "MESSAGES_SNAPSHOT":
                contents = {}
                for message in event["messages"]:
                    if message["role"] != "user":
                        calls = message.get("toolCalls")
                        contents[message["id"]] = calls[0]["function"]["arguments"] if calls else message["content"]
            case "RUN_FINISHED":
                assert not is_open
            case _:
                pass
    return contents
