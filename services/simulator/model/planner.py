"""The model as a planner: recognizes the plan tools' prompts by their words.

A question is split into tasks at its semicolons, after its first colon; a trip has its own tasks, with packing chosen
by the weather that an earlier task found. A requested draft is a list of tasks, which the plan then adopts.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import takewhile

from services.simulator.model_request import ModelRequest

ADD, UPDATE, RESTATE = "_plan_add_tasks_", "_plan_update_task_", "_plan_restate_tasks_"

WORK = re.compile(r"^Your task [0-9a-f]{8}: (.+)$", re.MULTILINE)
UPDATE_ASKED = re.compile(r"^Say how task ([0-9a-f]{8}) has ended", re.MULTILINE)
SPLIT_ASKED = re.compile(r"^Task [0-9a-f]{8} is next, and is to be split: (.+)$", re.MULTILINE)
LEFT = re.compile(r"^- ([0-9a-f]{8}): (.+)$", re.MULTILINE)
DRAFT_TAKEN = "Now put this plan down as tasks"
FEEDBACK_ASKED = "All tasks of the plan have ended"
SUMMARY_ASKED = "No task is left."
REPORTS = (
    re.compile(r"^Task [0-9a-f]{8} has ended: .+\nWhat it was: (.+)\nIts result:\n(.+)", re.DOTALL),
    re.compile(r"^Back from task [0-9a-f]{8} \((.+?)\): \w+\.\n\nIts result:\n(.+?)\n\nPart of: ", re.DOTALL),
)
"""Description and result of an ended task, in the text that a planner receives."""

DRAFT_TASK = re.compile(r"^\d+\. (.+)$", re.MULTILINE)
NEXT_REPORT = re.compile(rf"\n\n(?=Task [0-9a-f]{{8}} has ended: |Back from task |{SUMMARY_ASKED})")
"""Consecutive texts of the suite reach a model as one message."""

SUMMARY_HEAD = "Here is what came of it:"

TOGETHER = "at the same time"
"""Words that put all of a plan's tasks in one group."""

TASKS_MAX = 8

TRIP = re.compile(
    r"\b(?:trip|travel|journey|weekend|holiday|vacation|visit|tour|day)s?\b.*?\b(?:in|at|to|of)\s+"
    r"([A-Z][\w'’-]*(?:\s+[A-Z][\w'’-]*)*)",
    re.DOTALL,
)
PACKING = re.compile(r"\bpack\b", re.IGNORECASE)
WEATHER = re.compile(r"The weather in .+? on [\d-]+: ([a-z ]+), (-?\d+) °C")

COLD_C, WARM_C = 10, 22
CLOTHES = {
    "rain": "a rain jacket and shoes that stand water",
    "thunderstorm": "a rain jacket, and a book for the hours indoors",
    "snow": "boots and gloves",
    "fog": "something bright to be seen in",
    "sunny": "a hat and sunscreen",
}
"""By a word of the weather's condition."""


def choose_plan_call(request: ModelRequest) -> tuple[str, dict[str, object]] | None:
    """Choose the plan tool's call for the request, or None."""
    if request.results or not request.may_call:
        return None
    if UPDATE in request.tools and (match := UPDATE_ASKED.search(request.text)):
        return UPDATE, {"taskId": match[1], "status": "completed"}
    if RESTATE in request.tools and RESTATE in request.text:
        return RESTATE, {"tasks": [{"taskId": left, "description": text} for left, text in LEFT.findall(request.text)]}
    if ADD not in request.tools or FEEDBACK_ASKED in request.text:
        return None
    if match := SPLIT_ASKED.search(request.text):
        return ADD, {"tasks": [{"description": f"{part} {match[1]}"} for part in ("Begin to", "Finish to")]}
    answer = next((message.text for message in reversed(request.dialogue) if message.role == "assistant"), "")
    drafted = DRAFT_TASK.findall(answer) if DRAFT_TAKEN in request.text else []
    together = {"group": "together"} if TOGETHER in _find_question(request) else {}
    tasks = drafted[:TASKS_MAX] or _split_question(request.text)
    return ADD, {"tasks": [{"description": description, **together} for description in tasks]}


def draft_plan(request: ModelRequest) -> tuple[str, str] | None:
    """Write reasoning and text of a planner's draft; None for any other request."""
    if request.may_call or ADD not in request.tools or _is_summary_asked(request):
        return None
    tasks = _split_question(request.text)
    known = "The last one needs what the others find out, so it comes last. " if list_trip_tasks(request.text) else ""
    reasoning = f"What has to be done for this? I see {len(tasks)} parts. {known}I write them down before I plan."
    return reasoning, "\n".join(f"{number}. {task}" for number, task in enumerate(tasks, start=1))


def answer_plan_prompt(request: ModelRequest) -> str | None:
    """Answer a planner's prompt for text; None for any other request."""
    if FEEDBACK_ASKED in request.text:
        return "The work is done."
    if not _is_summary_asked(request):
        return None
    results = [f"**{task}**\n\n{result}" for task, result in _list_reports(request)]
    return "\n\n".join([SUMMARY_HEAD, *results])


def narrow_to_task(request: ModelRequest) -> ModelRequest:
    """Return the request with only its task as text."""
    match = WORK.search(request.text)
    return replace(request, text=match[1]) if match else request


def _split_question(question: str) -> list[str]:
    if tasks := [] if ";" in question else list_trip_tasks(question):
        return tasks
    _, colon, tail = question.partition(": ")
    parts = (part.strip(" .") for part in (tail if colon else question).split(";"))
    return [part for part in parts if part][:TASKS_MAX] or ["Answer"]


def _is_summary_asked(request: ModelRequest) -> bool:
    # A later message of the user may follow the prompt.
    trailing = takewhile(lambda message: message.role == "user", reversed(request.dialogue))
    return any(SUMMARY_ASKED in message.text for message in trailing)


def _find_question(request: ModelRequest) -> str:
    """Return the user's question: the last user message that is not a prompt for a task of the draft."""
    texts = (message.text for message in reversed(request.dialogue) if message.role == "user")
    return next((text for text in texts if DRAFT_TAKEN not in text), request.text)


def _list_reports(request: ModelRequest) -> list[tuple[str, str]]:
    """Return the tasks of this plan with their results, in the order of their ends."""
    reports: list[tuple[str, str]] = []
    for message in request.dialogue:
        if message.role == "assistant" and message.text.startswith(SUMMARY_HEAD):
            reports.clear()  # of an earlier plan of the same chat
            continue
        for text in NEXT_REPORT.split(message.text):
            if match := next((match for report in REPORTS if (match := report.search(text))), None):
                reports.append((match[1].strip(), match[2].strip()))
    return reports


def list_trip_tasks(question: str) -> list[str]:
    """Return the tasks of a trip's plan, in which later ones depend on earlier ones; empty for another question."""
    match = TRIP.search(question)
    if match is None:
        return []
    place = match[1]
    return [f"See what the weather in {place} is", f"Search for sights in {place}", f"Say what to pack for {place}"]


def suggest_packing(request: ModelRequest) -> str | None:
    """Answer a question about packing from the known weather; None for any other."""
    if not PACKING.search(request.text):
        return None
    reports = [report for message in request.dialogue for report in WEATHER.findall(message.text)]
    if not reports:
        return "Comfortable shoes, a charger and a bottle of water; the weather is not known yet."
    condition, temperature_c = reports[-1][0], int(reports[-1][1])
    clothes = "warm layers" if temperature_c < COLD_C else "light clothes" if temperature_c > WARM_C else "a pullover"
    extra = next((things for word, things in CLOTHES.items() if word in condition), "a thin jacket to be safe")
    return f"For this weather ({condition}, {temperature_c} °C): {clothes}, {extra}, and comfortable shoes."
