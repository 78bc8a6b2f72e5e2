"""A scripted tools service's authorizations of its user."""

from dataclasses import dataclass, field
from typing import Any

from headrace.errors import NotFound
from headrace.v1 import tools_pb2
from tests.support.contract import says


def make_authorization(server: str, **fields: Any) -> tools_pb2.Authorization:
    given: dict[str, Any] = {"issuer": "https://login.example/", "authorized_at": 1_700_000_000_000, "in_use": True}
    return tools_pb2.Authorization(server=server, **(given | fields))


@dataclass
class ScriptedAuthorizations:
    authorizations: list[tools_pb2.Authorization] = field(default_factory=list[tools_pb2.Authorization])

    ListAuthorizations = says(lambda self, _: tools_pb2.ListAuthorizationsResponse(authorizations=self.authorizations))

    async def RevokeAuthorization(self, request: Any, context: Any) -> tools_pb2.RevokeAuthorizationResponse:
        remaining = [authorization for authorization in self.authorizations if authorization.server != request.server]
        if len(remaining) == len(self.authorizations):
            raise NotFound(f"you have not authorized the MCP server {request.server!r}")
        self.authorizations = remaining
        return tools_pb2.RevokeAuthorizationResponse(revoked_at_issuer=request.server == "mail")
