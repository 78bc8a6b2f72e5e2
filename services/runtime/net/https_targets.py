"""Which URLs may be written to: https alone, but for hosts that an operator has opened."""

from __future__ import annotations

from services.runtime.net.addresses import find_refusal
from services.runtime.net.allow_list import AllowList
from services.runtime.net.targets import Target, TargetRefused, parse_target

PORTS = frozenset({443, 8443})
PLAIN_PORT = 80


def parse_https_target(url: str, allow: AllowList, ports: frozenset[int] = PORTS, *, verb: str = "reached") -> Target:
    """Return the target; names are not resolved. `verb` says in refusals what is not done.

    Raises:
        TargetRefused: It must not be reached, or not without TLS: only a host that is in `allow` may do without.
    """
    # The usual port of plain HTTP is let through to be refused for what is wrong with it.
    target = parse_target(url, allow, ports | {PLAIN_PORT})
    address = target.address
    is_opened = allow.has_host(target.host, target.port) or (
        address is not None and allow.has_address(address, target.port)
    )
    if target.url.scheme != "https" and not is_opened:
        raise TargetRefused(f"only https is {verb}, but for hosts that the operator has opened")
    if target.port == PLAIN_PORT and not is_opened:
        raise TargetRefused(f"port {PLAIN_PORT} is not {verb}")
    if address is not None and not is_opened and (why := find_refusal(address)):
        raise TargetRefused(f"{target.host!r} must not be reached from here: its address is {why}")
    return target
