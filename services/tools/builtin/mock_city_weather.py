"""Invents weather for demos and tests; the same arguments always give the same answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator

from headrace.v1 import tools_pb2
from services.tools.toolkit.tool import Tool, ToolContext, make_result

CONDITIONS = ("sunny", "partly cloudy", "cloudy", "light rain", "heavy rain", "thunderstorm", "fog", "snow")

PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1, "maxLength": 100, "description": "City, for example Shanghai"},
        "date": {"type": "string", "minLength": 1, "maxLength": 40, "description": "Day, as YYYY-MM-DD"},
    },
    "required": ["city", "date"],
    "additionalProperties": False,
}


async def execute(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    city, date = context.arguments["city"].strip(), context.arguments["date"].strip()
    dice = hashlib.sha256(f"{city.casefold()}\n{date}".encode()).digest()
    condition = CONDITIONS[dice[0] % len(CONDITIONS)]
    facts = {
        "city": city,
        "date": date,
        "condition": condition,
        "temperatureC": -(dice[1] % 12) if condition == "snow" else 5 + dice[1] % 30,
        "humidityPercent": 30 + dice[2] % 66,
        "windKmh": dice[3] % 45,
    }
    yield make_result(json.dumps(facts, ensure_ascii=False))


TOOL = Tool(
    name="mock_city_weather",
    description="Get the weather of a city on a day. Invented data, for demonstrations.",
    parameters=json.dumps(PARAMETERS),
    effect="read",
    execute=execute,
    tier="enabled",
)
