"""Limits as services show them: each with the place where its value was said."""

from __future__ import annotations

import dataclasses
from typing import Any

from headrace.v1 import limits_pb2
from services.runtime.process.config import name_variable

FIXED = "fixed"


def find_source(config: Any, field: str, service: str) -> dict[str, Any]:
    """Return the fields of a Limit that say its value, and who said it, of the setting `field` of `config`.

    A value that is the default's is the default's, whoever has set it.
    """
    [item] = [item for item in dataclasses.fields(config) if item.name == field]
    value = getattr(config, field)
    source = "default" if value == item.default else "settings"
    return {"value": value, "source": source, "source_name": name_variable(item, service)}


def make_fixed(name: str, value: int, *, kind: str, unit: str, per: str, **more: Any) -> limits_pb2.Limit:
    """Return a limit that this version has, whatever is set."""
    return limits_pb2.Limit(name=name, value=value, kind=kind, unit=unit, per=per, source=FIXED, **more)


def finish_limits(service: str, limits: list[limits_pb2.Limit]) -> limits_pb2.ListLimitsResponse:
    """Return the answer of `service`. What is used up is full."""
    for limit in limits:
        limit.service = service
        if limit.HasField("used") and limit.HasField("value") and limit.used >= limit.value:
            limit.is_full = True
    return limits_pb2.ListLimitsResponse(limits=limits)
