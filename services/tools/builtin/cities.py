"""Facts about a city: its date and time, and invented weather for demos and tests."""

from __future__ import annotations

import hashlib
import json
import zoneinfo
from collections.abc import AsyncGenerator
from datetime import datetime
from functools import cache

from headrace.v1 import tools_pb2
from services.tools.errors import ToolFailed
from services.tools.toolkit.tool import Tool, ToolContext, describe_parameters, make_result

MORE_CITIES = {
    "Asia/Shanghai": ("Beijing", "Shenzhen", "Guangzhou", "Hangzhou", "Chengdu", "Wuhan", "Nanjing", "Xi'an"),
    "Asia/Kolkata": ("Mumbai", "Delhi", "New Delhi", "Bangalore", "Bengaluru", "Chennai"),
    "Asia/Tokyo": ("Osaka", "Kyoto", "东京", "大阪"),
    "Europe/Berlin": ("Munich", "Hamburg", "Frankfurt", "Cologne"),
    "America/New_York": ("Washington", "Boston", "Miami", "Philadelphia", "Atlanta", "纽约"),
    "America/Los_Angeles": ("San Francisco", "Seattle", "San Diego", "San Jose", "Las Vegas", "洛杉矶", "旧金山"),
    "America/Chicago": ("Houston", "Dallas", "Austin"),
    "Europe/London": ("Manchester", "Edinburgh", "伦敦"),
    "Europe/Paris": ("Lyon", "Marseille", "巴黎"),
    "Asia/Hong_Kong": ("香港",),
    "Asia/Taipei": ("台北",),
    "Asia/Singapore": ("新加坡",),
}

CHINESE = ("北京", "上海", "广州", "深圳", "杭州", "成都", "武汉", "南京", "西安")

CONDITIONS = ("sunny", "partly cloudy", "cloudy", "light rain", "heavy rain", "thunderstorm", "fog", "snow")


async def _city_datetime(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    city = context.arguments.get("city", "").strip()
    zone = _find_zone(city) if city else "UTC"
    now = datetime.now(zoneinfo.ZoneInfo(zone))
    facts = {
        "city": city or "UTC",
        "timeZone": zone,
        "dateTime": now.isoformat(timespec="seconds"),
        "date": now.date().isoformat(),
        "time": now.strftime("%H:%M:%S"),
        "weekday": now.strftime("%A"),
    }
    yield make_result(json.dumps(facts, ensure_ascii=False))


def _find_zone(city: str) -> str:
    zone = _load_zones().get(_normalize_city(city))
    if zone is None:
        raise ToolFailed(
            f"city {city!r} is not known; try a large city of the same time zone, for example "
            "Shanghai, Tokyo, Paris, New York, Sao Paulo, or an IANA time zone such as Europe/Paris"
        )
    return zone


def _normalize_city(city: str) -> str:
    return "".join(letter for letter in city.casefold() if letter.isalnum() or letter == "/")


@cache
def _load_zones() -> dict[str, str]:
    names = sorted(name for name in zoneinfo.available_timezones() if "/" in name and not name.startswith("Etc/"))
    zones = {_normalize_city(name.rpartition("/")[2]): name for name in names}
    zones |= {_normalize_city(name): name for name in names}
    zones |= {_normalize_city(city): zone for zone, cities in MORE_CITIES.items() for city in cities}
    zones |= dict.fromkeys(CHINESE, "Asia/Shanghai")
    return zones | {"utc": "UTC", "gmt": "UTC"}


CITY_DATETIME = Tool(
    name="city_datetime",
    description="Get the current date and time of a city.",
    parameters=describe_parameters(
        {
            "city": {
                "type": "string",
                "maxLength": 100,
                "description": "City, for example Shanghai or New York, or an IANA time zone; without it: UTC",
            }
        }
    ),
    effect="read",
    execute=_city_datetime,
)


async def _mock_city_weather(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
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


MOCK_CITY_WEATHER = Tool(
    name="mock_city_weather",
    description="Get the weather of a city on a day. Invented data, for demonstrations.",
    parameters=describe_parameters(
        {
            "city": {"type": "string", "minLength": 1, "maxLength": 100, "description": "City, for example Shanghai"},
            "date": {"type": "string", "minLength": 1, "maxLength": 40, "description": "Day, as YYYY-MM-DD"},
        },
        "city",
        "date",
    ),
    effect="read",
    execute=_mock_city_weather,
    tier="enabled",
)
