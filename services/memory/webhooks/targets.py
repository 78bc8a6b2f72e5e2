"""Which URLs webhooks may have."""

from __future__ import annotations

from services.runtime.net.allow_list import AllowList
from services.runtime.net.targets import HTTPS_PORTS as PORTS
from services.runtime.net.targets import Target, parse_https_target

__all__ = ["PORTS", "parse_webhook_url"]


def parse_webhook_url(url: str, allow: AllowList, ports: frozenset[int] = PORTS) -> Target:
    """Return the target of a webhook; names are not resolved. Raises TargetRefused."""
    return parse_https_target(url, allow, ports, verb="delivered to")
