"""Agent cards: which of a remote agent's addresses is used, and where that may be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import orjson
from google.protobuf import json_format
from google.protobuf.message import Message
from yarl import URL

from headrace.a2a import a2a_pb2
from headrace.errors import RemoteBadAnswer, RemoteNotAllowed
from services.orchestrator.agents.definition.remote import Remote
from services.orchestrator.peers.remote.http import name_host

CARD_BYTES_MAX = 256 * 1024

VERSION = "1."
"""What versions of the protocol begin with that are spoken here."""

BINDINGS = ("JSONRPC", "HTTP+JSON")
"""Forms of the protocol that are spoken here; gRPC is not."""

DEPTH_MAX = 60
"""Nesting of what is said; protobuf's own reader takes 100, whose errors are no JSON's."""

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Interface:
    """Where and how a remote agent is served."""

    url: str
    is_rpc: bool
    tenant: str
    is_streaming: bool

    @property
    def host(self) -> str:
        return name_host(self.url)


def read_json(data: bytes | str, kind: type[M], host: str) -> M:
    """Return JSON as a message of the protocol, without fields that this version does not know.

    Raises:
        RemoteBadAnswer: It is none.
    """
    try:
        return json_format.ParseDict(
            orjson.loads(data), kind(), ignore_unknown_fields=True, max_recursion_depth=DEPTH_MAX
        )
    except (orjson.JSONDecodeError, json_format.ParseError, RecursionError, TypeError, ValueError, AttributeError):
        name = kind.DESCRIPTOR.name
        raise RemoteBadAnswer(f"{host} said something that is no {name} of A2A 1.0", remote=host) from None


def choose_interface(remote: Remote, data: bytes) -> Interface:
    """Return the first address of a card that is spoken to here, and that the agent's file allows.

    Raises:
        RemoteBadAnswer: It is no card, or has no such address.
        RemoteNotAllowed: All of them are at hosts that the file does not name.
    """
    host = name_host(remote.card)
    card = read_json(data, a2a_pb2.AgentCard, host)
    spoken = [*_list_spoken(card)]
    if not spoken:
        offered = ", ".join(f"{one.protocol_binding} {one.protocol_version}" for one in card.supported_interfaces)
        wanted = " or ".join(f"{binding} 1.0" for binding in BINDINGS)
        raise RemoteBadAnswer(f"the card of {host} offers no {wanted}, but {offered[:200] or 'nothing'}", remote=host)
    found = next((one for one in spoken if is_allowed(remote, one.url)), None)
    if found is None:
        others = ", ".join(dict.fromkeys(one.host for one in spoken))[:200]
        rule = (
            f"the card of {host} says that its agent is served at {others}; name that in remote.hosts to send it there"
        )
        raise RemoteNotAllowed(rule, remote=host)
    return found


def is_allowed(remote: Remote, url: str) -> bool:
    """Return whether the agent's file lets its messages and credentials go to a URL: to the card's host, and not with
    less safety than the card, or to one that it names."""
    try:
        card, target = URL(remote.card), URL(url)
    except ValueError:
        return False
    if target.scheme not in ("http", "https") or target.user is not None or not target.host:
        return False
    if card.scheme == "https" and target.scheme != "https":
        return False
    named = {name.lower() for name in remote.hosts}
    host = target.host.lower()
    return host == (card.host or "").lower() or host in named or f"{host}:{target.port}" in named


def _list_spoken(card: a2a_pb2.AgentCard) -> Iterator[Interface]:
    for one in card.supported_interfaces:
        if one.protocol_binding in BINDINGS and one.protocol_version.startswith(VERSION):
            is_rpc = one.protocol_binding == "JSONRPC"
            yield Interface(
                one.url.rstrip("/") if not is_rpc else one.url, is_rpc, one.tenant, card.capabilities.streaming
            )
