"""Trips: the tasks of their plans, and what to pack for the weather that an earlier task has seen."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.simulator.requests.model_request import ModelRequest

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


def list_trip_tasks(question: str) -> list[str]:
    """Return the tasks of a trip's plan, later ones in need of earlier ones; none for another question."""
    match = TRIP.search(question)
    if match is None:
        return []
    place = match[1]
    return [f"See what the weather in {place} is", f"Search for sights in {place}", f"Say what to pack for {place}"]


def suggest_packing(request: ModelRequest) -> str | None:
    """Answer a question about packing from the weather that is known; None for any other."""
    if not PACKING.search(request.text):
        return None
    reports = [report for said in request.dialogue for report in WEATHER.findall(said.text)]
    if not reports:
        return "Comfortable shoes, a charger and a bottle of water; the weather is not known yet."
    condition, temperature_c = reports[-1][0], int(reports[-1][1])
    clothes = "warm layers" if temperature_c < COLD_C else "light clothes" if temperature_c > WARM_C else "a pullover"
    extra = next((things for word, things in CLOTHES.items() if word in condition), "a thin jacket to be safe")
    return f"For this weather ({condition}, {temperature_c} °C): {clothes}, {extra}, and comfortable shoes."
