"""The client's calls about gates: what waits for people."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from headrace.sync.calls.unary import UnaryCalls
from headrace.sync.streams import reading
from headrace.v1 import gates_pb2


class GateCalls(UnaryCalls):
    _gates: Any

    def gates(
        self, *, scope: str = "answerable", page_size: int = 0, page_token: str = ""
    ) -> gates_pb2.ListGatesResponse:
        """Return a page of what waits for people, the one that waits longest first; `scope` answerable, own or
        tenant."""
        request = gates_pb2.ListGatesRequest(scope=scope, page_size=page_size, page_token=page_token)
        return self._send(self._gates.ListGates, request)

    @contextmanager
    def watch_gates(
        self, *, scope: str = "answerable", agent_key: str = "", kind: str = "", risk: str = ""
    ) -> Generator[Iterator[gates_pb2.WatchGatesResponse]]:
        """Follow what waits for people: `list_begin`, a `gate` for each that waits, `list_end`, then one for each that
        opens, changes or closes; the list again where something may have been missed.

        It ends when the server stops; whoever opens it again gets the list again.
        """
        request = gates_pb2.WatchGatesRequest(
            scope=scope, agent_key=agent_key or None, kind=kind or None, risk=risk or None
        )
        with reading(self._gates.WatchGates(request, metadata=self._metadata)) as news:
            yield news

    def gate(self, run_id: str, gate_id: str) -> gates_pb2.Gate:
        """Return a gate, open or closed, with its call's arguments."""
        request = gates_pb2.GetGateRequest(run_id=run_id, gate_id=gate_id)
        reply: gates_pb2.GetGateResponse = self._send(self._gates.GetGate, request)
        return reply.gate

    def answer_gate(
        self,
        run_id: str,
        gate_id: str,
        payload: str,
        *,
        request_id: str | None = None,
        holder: str | None = None,
    ) -> gates_pb2.AnswerGateResponse:
        """Answer a gate with a person's decision or a form's result, as JSON text; `holder` names one's own claim."""
        request = gates_pb2.AnswerGateRequest(
            run_id=run_id, gate_id=gate_id, payload=payload, request_id=request_id, holder=holder
        )
        return self._send(self._gates.AnswerGate, request)

    def claim_gate(
        self, run_id: str, gate_id: str, holder: str, *, lease_ms: int | None = None
    ) -> gates_pb2.ClaimGateResponse:
        """Claim a gate for the client `holder`, or prolong its claim, for `lease_ms` (60,000).

        Raises:
            Claimed: Another client has it.
        """
        request = gates_pb2.ClaimGateRequest(run_id=run_id, gate_id=gate_id, holder=holder, lease_ms=lease_ms)
        return self._send(self._gates.ClaimGate, request)

    def release_gate(self, run_id: str, gate_id: str, holder: str) -> bool:
        """Give the claim of the client `holder` up; return False where it had none."""
        request = gates_pb2.ReleaseGateRequest(run_id=run_id, gate_id=gate_id, holder=holder)
        reply: gates_pb2.ReleaseGateResponse = self._send(self._gates.ReleaseGate, request)
        return reply.released

    def delegate_gate(
        self, run_id: str, gate_id: str, to: Sequence[str], *, note: str | None = None, request_id: str | None = None
    ) -> str:
        """Let others (`user:NAME`, `role:NAME`) answer a gate too; return `delegated` or `closed`."""
        request = gates_pb2.DelegateGateRequest(run_id=run_id, gate_id=gate_id, to=to, note=note, request_id=request_id)
        reply: gates_pb2.DelegateGateResponse = self._send(self._gates.DelegateGate, request)
        return reply.status

    def ask_back(self, run_id: str, gate_id: str, note: str, *, request_id: str | None = None) -> str:
        """Ask the requester about a gate, or reply as the requester; return `asked_back` or `closed`."""
        request = gates_pb2.AskBackRequest(run_id=run_id, gate_id=gate_id, note=note, request_id=request_id)
        reply: gates_pb2.AskBackResponse = self._send(self._gates.AskBack, request)
        return reply.status

    def grants(
        self, *, scope: str = "own", chat_id: str | None = None, page_size: int = 0, page_token: str = ""
    ) -> gates_pb2.ListGrantsResponse:
        """Return a page of the approvals in force that hold for later calls, the oldest first; `scope` own or
        tenant."""
        request = gates_pb2.ListGrantsRequest(scope=scope, chat_id=chat_id, page_size=page_size, page_token=page_token)
        return self._send(self._gates.ListGrants, request)

    def revoke_grant(self, chat_id: str, grant_id: str) -> str:
        """End a grant before its time; return `revoked`, or `ended` where it was over by itself."""
        request = gates_pb2.RevokeGrantRequest(chat_id=chat_id, grant_id=grant_id)
        reply: gates_pb2.RevokeGrantResponse = self._send(self._gates.RevokeGrant, request)
        return reply.status

    @contextmanager
    def export_gates(
        self,
        chat_id: str | None = None,
        *,
        since: int | None = None,
        before: int | None = None,
        with_content: bool = False,
    ) -> Generator[Iterator[str]]:
        """Read the audit of gates of a chat, or of the tenant, from `since` to `before` (Unix milliseconds).

        The lines are JSON that `headrace.hash_chain` verifies; with the last one, `end`, it is whole.
        """
        request = gates_pb2.ExportGatesRequest(chat_id=chat_id, since=since, before=before, with_content=with_content)
        with reading(self._gates.ExportGates(request, metadata=self._metadata)) as told:
            yield (one.line for one in told)
