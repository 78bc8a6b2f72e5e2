"""The client of a server, over gRPC, for programs without an event loop.

    with Client() as headrace:
        with headrace.ask("What is the weather in Paris?", agent_key="assistant") as run:
            for text in run.text():
                print(text, end="")

It has the calls of `headrace.client`, and is that client over blocking channels (blocking.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, cast

import grpc

from headrace import client
from headrace.client import OPTIONS, REATTACH_S, SERVERS
from headrace.sync.blocking import BlockingChannel, BlockingIterator, complete
from headrace.sync.calls import Calls
from headrace.tls import Tls
from headrace.v1 import memory_pb2, operator_pb2, tools_pb2


class Client(Calls):
    """Connections to one deployment, shareable between threads; open it with `with`.

    The arguments are those of `headrace.client.Client`.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:7001",
        *,
        memory_address: str = "127.0.0.1:7003",
        tools_address: str = "127.0.0.1:7004",
        token: str = "",
        tls: Tls | None = None,
        reattach_s: float = REATTACH_S,
        channel: grpc.Channel | None = None,
    ) -> None:
        self._client = _BlockingClient(
            address,
            memory_address=memory_address,
            tools_address=tools_address,
            token=token,
            tls=tls,
            reattach_s=reattach_s,
            channel=channel and _block(channel),
        )

    def __enter__(self) -> Client:
        """Connect; raise OSError if the files of `tls` cannot be used."""
        complete(self._client.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        complete(self._client.__aexit__(kind, error, traceback))

    def chat(self, chat_id: str) -> memory_pb2.GetChatResponse:
        """Return a chat, with the history events of all its pages."""
        return complete(self._client.chat(chat_id))

    def share_chat(self, chat_id: str, *names: str, participants: Iterable[str] = ()) -> list[str]:
        """Set who may read a chat (`names`) and who may take part in it (`participants`); return all names.

        Names are tenant, user:NAME or role:NAME. Anybody not named loses access.
        """
        return complete(self._client.share_chat(chat_id, *names, participants=participants))

    def tenant_runs(
        self, wanted: operator_pb2.OperatorListRunsRequest | None = None
    ) -> operator_pb2.OperatorListRunsResponse:
        """Return a page of the runs of all users of the tenant, most recently started first."""
        return complete(self._client.tenant_runs(wanted))

    def export_facts(self) -> Iterator[memory_pb2.Fact]:
        """Yield all facts of the user, oldest first, including ended facts and tombstones."""
        return BlockingIterator(self._client.export_facts())

    def upload(self, name: str, data: bytes, *, chat_id: str | None = None) -> tools_pb2.UploadFileResponse:
        """Upload a file to a chat; without `chat_id`, a new chat is created.

        Pass the reply to `ask`: its `chat_id`, and its `reference` in `references`.
        """
        return complete(self._client.upload(name, data, chat_id=chat_id))


class _BlockingClient(client.Client):
    """The asynchronous client over blocking channels, so that none of its coroutines waits for a loop."""

    async def _open_channels(self) -> dict[str, grpc.aio.Channel]:
        if self._given_channel is not None:
            return dict.fromkeys(SERVERS, self._given_channel)
        places = zip(SERVERS, self._addresses, strict=True)
        if self._tls is None:
            return {name: _block(grpc.insecure_channel(address, options=OPTIONS)) for name, address in places}
        credentials = self._tls.credentials()
        return {name: _block(grpc.secure_channel(address, credentials, options=OPTIONS)) for name, address in places}

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no loop to hold up


def _block(channel: grpc.Channel) -> grpc.aio.Channel:
    return cast(Any, BlockingChannel(channel))
