"""What tools.yaml says of a credential of users."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.v1 import common_pb2


@dataclass(frozen=True, slots=True)
class Credential:
    """A secret of the user who asks, as tools.yaml declares it."""

    name: str
    description: str
    obtain: str = ""
    variable: str = ""
    """Of a command's environment; empty for one of an MCP server."""

    scheme: str = ""
    """What stands before it in the Authorization header of an MCP server."""

    answerers: common_pb2.Answerers | None = None
    """Who may supply it; None: the requester."""

    def make_need(self, problem: str) -> common_pb2.CredentialNeed:
        return common_pb2.CredentialNeed(
            name=self.name,
            description=self.description,
            obtain=self.obtain or None,
            problem=problem,
            answerers=self.answerers,
        )
