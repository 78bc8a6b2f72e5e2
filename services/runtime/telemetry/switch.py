"""Decides whether a process records spans."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

_URL = re.compile(r"https?://[^/?#\s]+\S*", re.IGNORECASE)


def is_enabled(env: Mapping[str, str]) -> bool:
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or env.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return any(env.get(name) for name in ENDPOINTS)


def check_endpoints(env: Mapping[str, str]) -> None:
    """Raise ValueError for an endpoint that is no address: exports would fail silently."""
    for name in ENDPOINTS:
        if is_enabled(env) and (endpoint := env.get(name)) and not _URL.fullmatch(endpoint):
            raise ValueError(f"{name}: {endpoint!r}: expected an address such as http://127.0.0.1:4318")


@asynccontextmanager
async def recording_spans(service: str, env: Mapping[str, str]) -> AsyncGenerator[None]:
    if not is_enabled(env):
        yield
        return
    # It takes a tenth of a second to import.
    from services.runtime.telemetry.exporting import exporting_spans

    async with exporting_spans(service):
        yield
