"""Calls that a question names, and those of the orchestrator's own tools, which involve people or sub-agents."""

from __future__ import annotations

import re
from collections.abc import Iterator

import orjson

from services.simulator.model_request import ModelRequest

WISHES = {
    "pay": re.compile(r"\bpay\b|支付", re.IGNORECASE),
    "read_pump": re.compile(r"\bpump\b", re.IGNORECASE),
    "publish_note": re.compile(r"\bpublish\b|发布", re.IGNORECASE),
    "confirm_dialog": re.compile(r"\bconfirm\b|\bdelete\b|\bbook\b|\border\b|确认|删除", re.IGNORECASE),
}
"""Tools by words that ask for them, in the order to try."""

NAMED = re.compile(r"^call ([\w.-]*\w)(?: with (\{.*\}))?[.!]?$", re.IGNORECASE | re.DOTALL)
"""Matches `Call ticket with {"number": 7}`, by which people try tools of their own."""

PAYMENT = re.compile(r"(\d+(?:\.\d+)?)\s*(?:euros?|eur|€)?\s+to\s+(.+?)\W*$", re.IGNORECASE)

TITLE_CHARS_MAX = 60

CALL = "call_subagent"

ASKED = re.compile(r"^Ask ([\w.-]+) to ([^:;]+): (.+)$", re.IGNORECASE | re.DOTALL)
"""Matches "Ask researcher to search for: water mills; windmills"."""

WISH = re.compile(
    r"^(?:please\s+)?(?:compare|contrast|research|investigate|look into|find out about|explain|比较|研究|调研"
    r"|what is the difference between)\s*(.+)$",
    re.IGNORECASE | re.DOTALL,
)
"""A question with parts that can be worked on separately: "Compare water mills and windmills"."""

PART_END = re.compile(r"\s*[;,、，]\s*(?:and\s+)?|\s+(?:and|or|with|versus|vs\.?)\s+|[和与]")
OFFERED = re.compile(r"^- agentKey ([\w.-]+):", re.MULTILINE)
"""An agent named in the tool's description."""

PARTS_MAX = 8


def choose_named_call(request: ModelRequest) -> tuple[str, dict[str, object]] | None:
    """Choose the call that the question spells out."""
    named = NAMED.search(request.text.strip())
    if named is None or named[1] not in request.tools:
        return None
    try:
        return named[1], orjson.loads(named[2] or "{}")
    except orjson.JSONDecodeError:
        return None


def choose_people_call(request: ModelRequest) -> tuple[str, dict[str, object]] | None:
    """Choose the call that the question asks for."""
    name = next((name for name, words in WISHES.items() if name in request.tools and words.search(request.text)), None)
    text = " ".join(request.text.split())
    if name == "pay":
        payment = PAYMENT.search(text)
        return (name, {"to": payment[2], "amountEur": float(payment[1])}) if payment else None
    if name == "read_pump":
        return name, {}
    if name == "publish_note":
        return name, {"title": text[:TITLE_CHARS_MAX], "text": text}
    if name == "confirm_dialog":
        return name, {"question": f"{text[:TITLE_CHARS_MAX]} — shall I?", "choices": ["no", "yes"]}
    return None


def choose_repair(request: ModelRequest) -> tuple[str, dict[str, object]] | None:
    """Choose to restart a pump that was read last and has stopped."""
    read = next((result.content for result in request.results if result.name == "read_pump"), "")
    if "restart_pump" not in request.tools or "stopped" not in read:
        return None
    return "restart_pump", {"reason": " ".join(read.split())[:200]}


def choose_sub_agent_calls(request: ModelRequest) -> Iterator[tuple[str, dict[str, str]]]:
    if CALL not in request.tools:
        return
    if match := ASKED.match(request.text):
        agent, work, parts = match[1], f"{match[2]} {{}}", match[3].split(";")
    elif match := WISH.match(request.text):
        agent = next(iter(OFFERED.findall(request.descriptions[CALL])), "")
        work, parts = "Read up on {}", PART_END.split(match[1])
    else:
        return
    named = {"agentKey": agent} if agent else {}
    parts = [part.strip(" .?!。？") for part in parts]
    for part in [part for part in parts if part][:PARTS_MAX]:
        yield CALL, {**named, "task": work.format(part)}
