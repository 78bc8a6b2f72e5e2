"""A user's browser has come back from the authorization server."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable

import structlog

from headrace.errors import InvalidRequest, NotFound, ProviderUnavailable
from headrace.v1 import tools_pb2
from services.runtime.auth import identity
from services.runtime.net.allow_list import AllowList
from services.runtime.rpc.audit_records import AuditRecords
from services.tools.mcp_client.oauth.token_store import Pending, TokenStore
from services.tools.mcp_client.oauth.tokens import AuthorizationFailed, TokensRefused, exchange_code

log = structlog.get_logger()


async def complete(
    store: TokenStore | None,
    audit: AuditRecords,
    find_allow: Callable[[str], AllowList],
    request: tools_pb2.CompleteAuthorizationRequest,
) -> str:
    """Keep the user's tokens and return the server's name. `find_allow` returns what a server's authorization may
    reach beside the public web.

    Raises:
        Overloaded: The audit log cannot be written, and nothing is kept.
        NotFound: The state is unknown, used, over, or another user's: nobody agrees for somebody else.
        InvalidRequest: It was refused, or comes from another authorization server.
        ProviderUnavailable: The authorization server does not answer.
    """
    caller = identity.require_identity()
    pending = None if store is None else await asyncio.to_thread(store.take_pending, request.state, caller)
    if store is None or pending is None:
        raise NotFound("this authorization is not on its way: it was used, is over, or is another user's")
    _check_issuer(request, pending)
    if request.error or not request.code:
        raise InvalidRequest.of("error", "it was refused at the authorization server")
    try:
        token = await exchange_code(pending, request.code, find_allow(pending.server))
    except TokensRefused as refusal:
        await asyncio.to_thread(store.delete_client, pending.server, pending.grantor.issuer, pending.redirect_url)
        raise InvalidRequest.of("code", f"is refused: {refusal}") from refusal
    except AuthorizationFailed as failure:
        raise ProviderUnavailable(str(failure)) from failure
    # Before it counts: there is no authorization of which the log does not know.
    await audit.record("authorization.granted", caller, server=pending.server, issuer=pending.grantor.issuer)
    await asyncio.to_thread(store.put_token, token)
    log.info("mcp server authorized", server=pending.server, tenant=caller.tenant, user=caller.user)
    return pending.server


def _check_issuer(request: tools_pb2.CompleteAuthorizationRequest, pending: Pending) -> None:
    """Raise InvalidRequest where the code is another authorization server's (RFC 9207)."""
    is_said = request.HasField("issuer")
    if is_said and not hmac.compare_digest(request.issuer.encode(), pending.grantor.issuer.encode()):
        raise InvalidRequest.of("issuer", "is not the authorization server that was asked")
    if pending.says_issuer and not is_said:
        raise InvalidRequest.of("issuer", "must be given, as this authorization server says it")
