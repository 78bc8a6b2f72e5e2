"""The remote agents of this process: their clients, and the tasks being cancelled there."""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from headrace.errors import HeadraceError, RemoteUnavailable
from services.orchestrator.agents.definition.sections import Remote
from services.orchestrator.peers.remote.client import CARD_BYTES_MAX, VERSION, Interface, RemoteClient, choose_interface
from services.orchestrator.peers.remote.http import Credentials, Http, Lost, Refused, Request, name_host
from services.orchestrator.peers.stubs import TtlCache

CARD_FRESH_S = 60.0
"""Time after which a card is read again."""

CANCELS_MAX = 256
"""Maximum concurrent cancels; tasks beyond that are not cancelled."""

CANCEL_S = 5.0
"""Timeout of a cancel, within compose's stop_grace_period."""

log = structlog.get_logger()


class RemoteAgents:
    """Its tasks are owned by `group`."""

    def __init__(self, http: Http, credentials: Credentials, group: asyncio.TaskGroup) -> None:
        self._http = http
        self._credentials = credentials
        self._group = group
        self._cards: TtlCache[str, Interface] = TtlCache(CARD_FRESH_S)
        self._cancels: set[asyncio.Task[None]] = set()

    async def open_client(self, remote: Remote) -> RemoteClient:
        """Return a client of the agent; its card is read unless cached.

        Raises:
            RemoteUnavailable, RemoteAuthentication, RemoteNotAllowed, RemoteBadAnswer: The agent has no usable card.
        """
        interface = await self._cards.get_or_ask(remote.model_dump_json(), partial(self._read_card, remote))
        return RemoteClient(remote, interface, self._http, self._credentials)

    async def _read_card(self, remote: Remote) -> Interface:
        headers = {"A2A-Version": VERSION, **self._credentials.make_headers(remote)}
        host = name_host(remote.card)
        try:
            request = Request("GET", remote.card, headers)
            status, body = await self._http.fetch(request, remote.request_timeout_ms / 1000, CARD_BYTES_MAX)
        except Lost as error:
            raise RemoteUnavailable(f"no agent card: {error}", remote=host) from None
        if status != 200:
            raise RemoteUnavailable(f"{host} has no agent card there ({status})", remote=host, status=status)
        return choose_interface(remote, body)

    def cancel_later(self, remote: Remote, task_id: str) -> None:
        """Cancel a task in the background, with one attempt; a failure is only logged, because no caller waits."""
        if len(self._cancels) >= CANCELS_MAX:
            _warn(remote, task_id, "too many at a time")
            return
        task = self._group.create_task(self._cancel(remote, task_id))
        self._cancels.add(task)
        task.add_done_callback(self._cancels.discard)

    async def _cancel(self, remote: Remote, task_id: str) -> None:
        try:
            async with asyncio.timeout(CANCEL_S):
                await (await self.open_client(remote)).cancel_task(task_id)
        except (HeadraceError, Lost, Refused, TimeoutError) as error:
            _warn(remote, task_id, str(error))  # the task may have ended in the meantime, which is just as good


def _warn(remote: Remote, task_id: str, problem: str) -> None:
    log.warning("remote task not cancelled", remote=name_host(remote.card), task_id=task_id, problem=problem)
