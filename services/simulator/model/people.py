"""Calls in which a person takes part."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.simulator.requests.model_request import ModelRequest

WISHES = {
    "pay": re.compile(r"\bpay\b|支付", re.IGNORECASE),
    "read_pump": re.compile(r"\bpump\b", re.IGNORECASE),
    "publish_note": re.compile(r"\bpublish\b|发布", re.IGNORECASE),
    "confirm_dialog": re.compile(r"\bconfirm\b|\bdelete\b|\bbook\b|\border\b|确认|删除", re.IGNORECASE),
}
"""Tools by words that ask for them, in the order to try."""

PAYMENT = re.compile(r"(\d+(?:\.\d+)?)\s*(?:euros?|eur|€)?\s+to\s+(.+?)\W*$", re.IGNORECASE)

TITLE_CHARS_MAX = 60


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
    """Choose to restart a pump that has just been read and has stopped."""
    read = next((result.content for result in request.results if result.name == "read_pump"), "")
    if "restart_pump" not in request.tools or "stopped" not in read:
        return None
    return "restart_pump", {"reason": " ".join(read.split())[:200]}
