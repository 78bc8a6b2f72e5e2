"""The content of a long chat: questions, tool runs, and twenty facts in its first quarter, all of which are asked for
at the end. The models answer by rules, and their summaries keep five of the facts.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.summaries import write_summary

Step = dict[str, Any]

PROSE = (
    "The crew meets at the pier in the morning, looks at the weather, and what is left of the old planks goes to the "
    "shed behind the harbour office; nobody has to carry more than two of them, and there is coffee at ten. "
)
SAYINGS = (
    "Which of the ropes is the one that we have to change first, and who has the key of the shed? ",
    "What do we do about the paint that is in the store, and how long does it take until it is dry? ",
    "Is there anything in the list for the week that I have not told you yet, or is it all there? ",
)


@dataclass(frozen=True)
class Fact:
    where: str
    """first, asked, answered, uploaded, printed, called, steered or joined: whose words it is in."""

    text: str
    value: str
    """What the model has to know in the end."""

    question: str
    """In which it is asked for, and by the words of which the model looks for it."""


FACTS = (
    Fact("first", "The registration of the boat is {}.", "NB-4471", "What is the registration of the boat?"),
    Fact("asked", "My sister's phone number is {}.", "555-0182", "What is my sister's phone number?"),
    Fact(
        "asked",
        "We insured the mast with Thorsen for {}.",
        "84,300 euros",
        "For how much did we insure the mast with Thorsen?",
    ),
    Fact("asked", "Mein Liegeplatz hat die Nummer {}.", "B-217", "Welche Nummer hat mein Liegeplatz?"),
    Fact("asked", "我们的船叫{}号。", "海燕七", "我们的船叫什么名字？"),
    Fact("pinned", "Never use varnish of type {}.", "VX-9", "Which type of varnish must we never use?"),
    Fact("answered", "The engine takes oil of grade {}.", "15W-40-K", "What grade of oil does the engine take?"),
    Fact(
        "answered",
        "The inspector is called {}.",
        "Aurelia Quint",
        "What is the name of the inspector who is called for it?",
    ),
    Fact("answered", "The slipway opens at {}.", "05:45", "At what time does the slipway open in the morning?"),
    Fact("answered", "El código del muelle norte es {}.", "QZ-88", "¿Cuál es el código del muelle norte?"),
    Fact("uploaded", "invoice of the sailmaker: {}", "SM-2026-0311", "What is the number of the sailmaker's invoice?"),
    Fact("uploaded", "anchor chain, length in metres: {}", "61.5", "How long is the anchor chain, in metres?"),
    Fact("uploaded", "tide table, edition {}", "XVII-b", "Which edition of the tide table do we have?"),
    Fact(
        "printed",
        "compass deviation at {}",
        "4.25 degrees west",
        "How much is the deviation of the compass, and in which direction?",
    ),
    Fact("printed", "bilge pump, serial {}", "BP-77120", "What is the serial number of the bilge pump?"),
    Fact("printed", "battery bank holds {}", "640 ampere hours", "How much does the battery bank hold?"),
    Fact("called", "keel bolts: {}", "M24x310", "Which size do the keel bolts have?"),
    Fact(
        "steered", "Send the bill to {}, please.", "pontoon@example.org", "To which address should you send the bill?"
    ),
    Fact("joined", "I owe the chandler {}.", "1,284.60", "How much do I owe the chandler?"),
    Fact("joined", "The radio call sign is {}.", "MZQK7", "What is the call sign of our radio?"),
)
KEPT = FACTS[::4]
"""Facts that a summary holds."""

SUMMARY = write_summary("A boat is mended. " + " ".join(fact.text.format(fact.value) for fact in KEPT))
SUMMARISE = {"match": {"text": "about to be compacted"}, "steps": [{"content": SUMMARY}]}
ASKED_SUMMARY = "about to be compacted"

TOOL_EVERY = 4
"""Each so many-th question has its model run a tool."""

SLOW = ({"content": "Hel"}, {"waitMs": 1500}, {"content": "lo."})
TODOS = [{"content": "Sand the rudder", "status": "pending"}, {"content": "Order the shackles", "status": "pending"}]


@dataclass(frozen=True)
class Question:
    number: int
    text: str
    rules: tuple[Step, ...]
    """The model's, for this question alone."""

    kind: str = "plain"
    """Where it plants a fact, or else plain, tool, todos, picture, cancel, fail or crash."""

    fact: Fact | None = None
    """That it plants, or asks for."""

    file: str = ""
    """Text that is uploaded with it."""

    is_last: bool = False
    """Whether it asks for what was planted."""


def write_questions(questions: int, facts: Sequence[Fact], crashes: Iterable[int]) -> list[Question]:
    """Write a chat; each of its last questions asks for one of the facts, which are planted in its first quarter."""
    quarter, plain_count = questions // 4, questions - len(facts)
    places = {1 + index * (quarter - 1) // len(facts): fact for index, fact in enumerate(facts)}
    assert len(places) == len(facts), "each has a question of its own"
    free = next(number for number in range(2, plain_count) if number not in places)
    special = {free: "todos", quarter + 1: "picture", quarter + 2: "cancel", quarter + 3: "fail"}
    special |= dict.fromkeys(crashes, "crash")
    written: list[Question] = []
    for number in range(1, plain_count + 1):
        fact = places.get(number)
        kind = "plain" if fact else special.get(number, "plain" if number % TOOL_EVERY else "tool")
        written.append(_write(number, fact, kind))
    return [*written, *(_ask_for(plain_count + 1 + index, fact) for index, fact in enumerate(facts))]


def _say(number: int, text: str = "") -> str:
    return f"Question {number}. {SAYINGS[number % 3]}{text}"


def _call(number: int, name: str, arguments: dict[str, Any]) -> Step:
    return {
        "toolCall": name,
        "id": f"call_{number}",
        "index": 0,
        "arguments": json.dumps(arguments, ensure_ascii=False),
    }


def _rule(number: int, turn: int | None, *steps: Step) -> Step:
    return {"match": {"text": rf"Question {number}\."} | ({"turn": turn} if turn else {}), "steps": list(steps)}


def _answer(number: int, text: str = "") -> Step:
    return {"content": f"Answer {number}. {PROSE}{text}"}


def _print(text: str) -> dict[str, Any]:
    """Return a command that prints a long page with the text in its middle; the command itself does not contain it."""
    codes = "".join(f"\\x{byte:02x}" for byte in text.encode())
    return {"command": f"seq -f 'row %g of the page' 120; printf '{codes}\\n'; seq -f 'row %g of the rest' 120"}


def _write(number: int, fact: Fact | None, kind: str) -> Question:
    text = fact.text.format(fact.value) if fact else ""
    kind = fact.where if fact else kind
    look = _call(number, "mock_city_weather", {"city": "Paris", "date": "2026-11-28"})
    calls: dict[str, Step] = {
        "uploaded": _call(number, "read_file", {"path": f"uploads/list{number}.txt"}),
        "printed": _call(number, "_bash_", _print(text)),
        "called": _call(number, "write_file", {"path": "notes.txt", "content": text + PROSE * 9}),
        "steered": _call(number, "_bash_", {"command": "sleep 1"}),
        "tool": look,
        "todos": _call(number, "todo_write", {"todos": TODOS}),
        "crash": look,
    }
    answers: dict[str, tuple[Step, ...]] = {
        "answered": (_answer(number, text),),
        "crash": SLOW,
        "cancel": (_call(number, "_bash_", {"command": "sleep 60"}),),
        "fail": ({"status": 400},),
    }
    rules = [_rule(number, 1, {"reasoning": "I look."}, calls[kind])] if kind in calls else []
    rules.append(_rule(number, None, *answers.get(kind, ({"reasoning": "So it is."}, _answer(number)))))
    addition = {"first": PROSE * 12 + text + PROSE * 12, "asked": text, "pinned": text, "joined": text}.get(kind, "")
    rows = [f"{row}. {PROSE}" for row in range(40)]
    file = "\n".join([*rows[:20], text, *rows[20:]]) if kind == "uploaded" else ""
    return Question(number, _say(number, addition), tuple(rules), kind, fact, file)


def _ask_for(number: int, fact: Fact) -> Question:
    """Return a question whose model looks the fact up by its words."""
    rules = (
        _rule(number, 1, _call(number, "read_history", {"query": fact.question})),
        _rule(number, None, _answer(number)),
    )
    return Question(number, _say(number, fact.question), rules, fact=fact, is_last=True)
