"""The client's calls about the audit log."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from headrace.sync.calls.unary import UnaryCalls
from headrace.sync.streams import reading
from headrace.v1 import audit_pb2


class AuditCalls(UnaryCalls):
    _audit: Any

    def audit(
        self, event: str | None = None, page_token: str = "", page_size: int | None = None
    ) -> audit_pb2.ListAuditResponse:
        """Return a page of what was done in the tenant, the newest first; `event` is a name, or its part before the
        dot."""
        request = audit_pb2.ListAuditRequest(event=event, page_token=page_token, page_size=page_size)
        return self._send(self._audit.ListAudit, request)

    @contextmanager
    def export_audit(self, after_seq: int = 0, *, follow: bool = False) -> Generator[Iterator[str]]:
        """Read the tenant's audit log in order, with `follow` also what comes later.

        The lines are JSON that `headrace.hash_chain` verifies; the last one of an export is audit.exported.
        """
        request = audit_pb2.ExportAuditRequest(after_seq=after_seq, follow=follow)
        with reading(self._audit.ExportAudit(request, metadata=self._metadata)) as lines:
            yield (one.line for one in lines)

    def verify_audit(self) -> audit_pb2.VerifyAuditResponse:
        """Have the tenant's audit log checked as it is stored; `problem` names the first place that is wrong."""
        return self._send(self._audit.VerifyAudit, audit_pb2.VerifyAuditRequest())
