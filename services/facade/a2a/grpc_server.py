"""The gRPC server of A2A's gRPC binding."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import grpc

from services.facade.a2a.operations import Operations
from services.facade.faces.runs import PublishedAgents
from services.runtime.auth.audit_records import Record
from services.runtime.auth.stored_keys import StoredKeys
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import EDGE_MESSAGE_BYTES_MAX


@asynccontextmanager
async def serving_a2a(
    settings: ServerSettings | None,
    published: PublishedAgents,
    peers: Mapping[str, grpc.aio.Channel],
    keys: StoredKeys | None,
    record_refused: Record,
) -> AsyncGenerator[str]:
    """Serve A2A over gRPC inside the block and yield the first address, or an empty string without settings.

    Raises:
        OSError: An address cannot be bound.
    """
    if settings is None:
        yield ""
        return
    # Imported here: the gRPC server and its metrics are slow to load, and most facades do not serve A2A over
    # gRPC.
    from services.facade.a2a.grpc_service import make_grpc_service
    from services.runtime.rpc.server import serving_grpc

    async with serving_grpc(
        settings,
        [make_grpc_service(published, Operations.from_peers(peers))],
        peers=peers,
        message_bytes_max=EDGE_MESSAGE_BYTES_MAX,
        keys=keys,
        record_refused=record_refused,
    ) as server:
        yield server.addresses[0]
