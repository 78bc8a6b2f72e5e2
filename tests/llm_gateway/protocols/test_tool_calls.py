"""Tool-call fragments as real providers send them, and the one form they are given in."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from services.llm_gateway.protocols.openai.frames import decode_frame
from services.llm_gateway.protocols.openai.tool_calls import ToolCalls

Out = tuple[int, str, str, str]


def convert_parts(*parts: dict[str, Any], taken: tuple[str, ...] = ()) -> list[Out]:
    calls, out = ToolCalls(taken), list[Out]()
    for part in parts:
        frame = decode_frame(orjson.dumps({"choices": [{"delta": {"tool_calls": [part]}}]}))
        assert frame.choices is not None
        assert frame.choices[0].delta is not None
        for read in frame.choices[0].delta.tool_calls or ():
            if (piece := calls.convert_part(read)) is not None:
                out.append((piece.index, piece.id, piece.name, piece.arguments))
    return out


def part(index: int | None = None, call_id: str | None = None, name: str | None = None, arguments: Any = None) -> Any:
    fields = {"index": index, "id": call_id}
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {key: value for key, value in fields.items() if value is not None} | {"function": function}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param(
            [part(0, "a", "f", ""), part(0, arguments='{"x"'), part(0, arguments=":1}")],
            [(0, "a", "f", ""), (0, "", "", '{"x"'), (0, "", "", ":1}")],
            id="as documented",
        ),
        pytest.param([part(0, "a", "f", "{}")], [(0, "a", "f", "{}")], id="whole call in one fragment"),
        pytest.param(
            [part(None, "a", "f", "{"), part(None, arguments="}"), part(None, "b", "g", "{}")],
            [(0, "a", "f", "{"), (0, "", "", "}"), (1, "b", "g", "{}")],
            id="no index",
        ),
        pytest.param(
            [part(None, "a", "f", "{"), part(None, "b", "g", "{"), part(None, "a", arguments="}")],
            [(0, "a", "f", "{"), (1, "b", "g", "{"), (0, "", "", "}")],
            id="no index, the id tells",
        ),
        pytest.param(
            [part(0, "a", "f", ""), part(0, "a", "", "{"), part(0, "a", "f", "}")],
            [(0, "a", "f", ""), (0, "", "", "{"), (0, "", "", "}")],
            id="id and name repeated, empty name",
        ),
        pytest.param(
            [part(0, "a", "f", "{}"), part(0, "b", "g", "{}")],
            [(0, "a", "f", "{}"), (1, "b", "g", "{}")],
            id="every call has index 0",
        ),
        pytest.param(
            [part(1, "a", "f", "{"), part(3, "b", "g", "{"), part(1, arguments="}"), part(3, arguments="}")],
            [(0, "a", "f", "{"), (1, "b", "g", "{"), (0, "", "", "}"), (1, "", "", "}")],
            id="indexes interleaved and with gaps",
        ),
        pytest.param([part(0, "a", "f", None), part(0, arguments="")], [(0, "a", "f", "")], id="nothing new"),
    ],
)
def test_fragments_are_given_in_one_form(parts: list[Any], expected: list[Out]) -> None:
    assert convert_parts(*parts) == expected


def test_arguments_that_are_an_object_keep_their_text() -> None:
    call = '{"id":"a","function":{"name":"f","arguments":{"n":12345678901234567890.0}}}'
    frame = decode_frame(f'{{"choices":[{{"delta":{{"tool_calls":[{call}]}}}}]}}')
    assert frame.choices is not None
    assert frame.choices[0].delta is not None
    delta = ToolCalls(()).convert_part((frame.choices[0].delta.tool_calls or [])[0])
    assert delta is not None
    assert delta.arguments == '{"n":12345678901234567890.0}'


def test_a_missing_id_is_made_and_a_known_one_replaced() -> None:
    first, second = convert_parts(part(0, None, "f", "{}"), part(1, "call_0", "g", "{}"), taken=("call_0",))
    ids = {first[1], second[1]}
    assert len(ids) == 2
    assert all(call_id.startswith("call_") for call_id in ids)
    assert "call_0" not in ids
