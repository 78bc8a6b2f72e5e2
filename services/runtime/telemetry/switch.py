"""Whether a process records spans: when its environment says where they go."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def is_on(env: Mapping[str, str]) -> bool:
    """Whether an endpoint is set, and OpenTelemetry's own switches are not off."""
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or env.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return any(env.get(name) for name in ENDPOINTS)


@asynccontextmanager
async def traced(service: str, env: Mapping[str, str]) -> AsyncGenerator[None]:
    """Record and export spans inside the block, if `env` has it so."""
    if not is_on(env):
        yield
        return
    # It takes a tenth of a second to import.
    from services.runtime.telemetry.exporting import exporting

    async with exporting(service):
        yield
