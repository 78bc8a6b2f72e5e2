"""The model as a planner: recognizes the plan tools' prompts by their words.

A question is split into tasks at its semicolons, after its first colon.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.simulator.requests.model_request import ModelRequest

ADD, UPDATE, RESTATE = "_plan_add_tasks_", "_plan_update_task_", "_plan_restate_tasks_"

WORK = re.compile(r"^Your task [0-9a-f]{8}: (.+)$", re.MULTILINE)
UPDATE_ASKED = re.compile(r"^Say how task ([0-9a-f]{8}) has ended", re.MULTILINE)
SPLIT_ASKED = re.compile(r"^Task [0-9a-f]{8} is next, and is to be split: (.+)$", re.MULTILINE)
LEFT = re.compile(r"^- ([0-9a-f]{8}): (.+)$", re.MULTILINE)
FEEDBACK_ASKED = "All tasks of the plan have ended"
SUMMARY_ASKED = "No task is left."
RESULT = re.compile(r"^What it was: (.+)\nIts result:\n(.+)$", re.MULTILINE)

TOGETHER = "at the same time"
"""Words that put all of a plan's tasks in one group."""

TASKS_MAX = 8


def choose_plan_call(request: ModelRequest) -> tuple[str, dict[str, object]] | None:
    """Choose the plan tool's call that the request wants, or None."""
    if request.results:
        return None
    if UPDATE in request.tools and (match := UPDATE_ASKED.search(request.text)):
        return UPDATE, {"taskId": match[1], "status": "completed"}
    if RESTATE in request.tools and RESTATE in request.text:
        return RESTATE, {"tasks": [{"taskId": left, "description": text} for left, text in LEFT.findall(request.text)]}
    if ADD not in request.tools or FEEDBACK_ASKED in request.text or SUMMARY_ASKED in request.text:
        return None
    if match := SPLIT_ASKED.search(request.text):
        return ADD, {"tasks": [{"description": f"{part} {match[1]}"} for part in ("Begin to", "Finish to")]}
    together = {"group": "together"} if TOGETHER in request.text else {}
    _, colon, tail = request.text.partition(": ")
    parts = [part.strip(" .") for part in (tail if colon else request.text).split(";")]
    descriptions = [part for part in parts if part][:TASKS_MAX] or ["Answer"]
    return ADD, {"tasks": [{"description": description, **together} for description in descriptions]}


def answer_plan_prompt(request: ModelRequest) -> str | None:
    """Answer a planner's prompt for text; None for any other request."""
    if FEEDBACK_ASKED in request.text:
        return "The work is done."
    if SUMMARY_ASKED in request.text:
        results = [f"- {task}: {result}" for task, result in RESULT.findall(request.preceding_text)]
        return "\n".join(["Here is what came of it:", *results])
    return None


def narrow_to_task(request: ModelRequest) -> ModelRequest:
    """Return the request with only its task as text."""
    match = WORK.search(request.text)
    return replace(request, text=match[1]) if match else request
