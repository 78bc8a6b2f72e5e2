"""Limits in the form that services report: each with the source of its value."""

from __future__ import annotations

import dataclasses
from typing import Any

from headrace.v1 import limits_pb2
from services.runtime.clock import now_ms
from services.runtime.process.config import name_variable

FIXED = "fixed"


def make_configured(config: Any, field: str, service: str, **more: Any) -> limits_pb2.Limit:
    """Return the limit set by the setting `field` of `config`, with its source.

    A value equal to the default counts as the default, even if it was set.
    """
    [item] = [item for item in dataclasses.fields(config) if item.name == field]
    value = getattr(config, field)
    source = "default" if value == item.default else "settings"
    return limits_pb2.Limit(value=value, source=source, source_name=name_variable(item, service), **more)


def make_fixed(name: str, value: int, *, kind: str, unit: str, per: str, **more: Any) -> limits_pb2.Limit:
    """Return a limit fixed in this version."""
    return limits_pb2.Limit(name=name, value=value, kind=kind, unit=unit, per=per, source=FIXED, **more)


def find_opening_time(wait_s: float) -> int:
    """Return the Unix milliseconds at which a limit opens, after so many seconds; 0 if it is open."""
    return now_ms() + round(wait_s * 1000) if wait_s else 0


def finish_limits(service: str, limits: list[limits_pb2.Limit]) -> limits_pb2.ListLimitsResponse:
    """Return the answer of `service`. A limit that is used up is marked full."""
    for limit in limits:
        limit.service = service
        if limit.HasField("used") and limit.HasField("value") and limit.used >= limit.value:
            limit.is_full = True
    return limits_pb2.ListLimitsResponse(limits=limits)
