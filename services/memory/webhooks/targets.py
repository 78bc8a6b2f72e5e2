"""Which URLs webhooks may have."""

from __future__ import annotations

from services.runtime.net.allow_list import AllowList
from services.runtime.net.https_targets import PORTS, parse_https_target
from services.runtime.net.targets import Target

__all__ = ["PORTS", "parse_webhook_url"]


def parse_webhook_url(url: str, allow: AllowList, ports: frozenset[int] = PORTS) -> Target:
    """Return the target of a webhook; names are not resolved. Raises TargetRefused."""
    return parse_https_target(url, allow, ports, verb="delivered to")
