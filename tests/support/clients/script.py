"""The provider's answers during the clients' exercises, and what the clients must receive."""

import json
from pathlib import Path
from typing import Any

from tests.support.suite import MODEL

PIECES = ["one ", "two ", "three"]
PLACE = {"city": "Paris", "people": 2102650}
PLACE_JSON = ['{"city": "Paris", ', '"people": 2102650}']

EXERCISES: dict[str, Any] = {
    "text": "one two three",
    "streamed text": ["one two three", True],
    "function": ["You are in Lyon.", [{"exact": True}]],
    "streamed function": ["You are in Lyon.", [{"exact": True}]],
    "typed": PLACE,
    "streamed typed": PLACE,
    "typed by a call": PLACE,
    "streamed typed by a call": PLACE,
}
"""By name: what an exercise gives. A streamed text is followed by whether it came in pieces, an answer after calls of
the caller's function by their arguments."""

MODELS = ("schemas", "words")

TYPED_CALLS = ("Place", "PartialPlace", "final_result")
"""Names that clients give the function whose arguments are the typed answer."""


def call(name: str, *arguments: str) -> dict[str, Any]:
    return {"toolCall": name, "id": f"call_{name}", "arguments": arguments}


SCRIPT: list[dict[str, Any]] = [
    {"match": {"text": r"does not have the form"}, "steps": [{"content": ["```json\n", *PLACE_JSON, "\n```"]}]},
    {"match": {"text": r"Which city\?", "model": "schemas"}, "steps": [{"content": PLACE_JSON}]},
    {"match": {"text": r"Which city\?", "model": "words"}, "steps": [{"content": "Paris, I think, with two million."}]},
    *({"match": {"text": rf"Call {name}\."}, "steps": [call(name, *PLACE_JSON)]} for name in TYPED_CALLS),
    {
        "match": {"text": r"Observation:\s+{.city.: .Lyon.}"},
        "steps": [call("final_answer", '{"answer": "You are in Lyon."}')],
    },
    {"match": {"text": r"Where am I\?", "turn": 1}, "steps": [call("locate", '{"exact":', " true}")]},
    {"match": {"text": r"Where am I\?"}, "steps": [{"content": ["You are ", "in Lyon."]}]},
    {
        "match": {"text": r"What time\?", "turn": 1},
        "steps": [{"content": "I look. "}, call("city_datetime", '{"city": "Paris"}')],
    },
    {"match": {"text": r"What time\?"}, "steps": [{"content": ["It is ", "late."]}]},
    {"match": {"text": r"Fail\."}, "steps": [{"status": 401}]},
    {"match": {"text": r"Many\."}, "steps": [{"repeat": "ten chars ", "times": 20_000}]},
    {"match": {"text": r"Wait\."}, "steps": [{"content": ["first ", "words "]}, {"stall": True}]},
    {"match": {"text": r"Count\."}, "steps": [{"content": PIECES}]},
]
"""The model that is told the form in words has it wrong at first, and then in a fence. smolagents gives results as
messages of the user, and takes its answer by a call."""


ASKER: dict[str, Any] = {
    "mode": "REACT",
    "modelConfig": MODEL,
    "toolConfig": {"frontends": ["ask_human"]},
    "react": {"systemPrompt": "Ask."},
}


def write_asker(folder: Path) -> None:
    """Write the agent `asker` into the configuration of a suite that is started in the folder."""
    agents = folder / "config" / "agents"
    agents.mkdir(parents=True)
    (agents / "asker.json").write_text(json.dumps(ASKER))


QUESTION = call("ask_human", json.dumps({"question": "Which mill?"}))
ASKING: list[dict[str, Any]] = [{"match": {"turn": 1}, "steps": [QUESTION]}, {"steps": [{"content": "Good."}]}]
"""How a model asks a person, and takes any answer."""

WAITING: list[dict[str, Any]] = [{"content": ["one ", "two "]}, {"waitMs": 20_000}, {"content": "three"}]
"""How a model answers that is silent in mid-answer for longer than a service takes to be killed."""
