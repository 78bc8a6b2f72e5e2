"""The client's calls of those who operate a deployment; they need a credential with the scope `operate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.sync.calls.unary import UnaryCalls
from headrace.v1 import limits_pb2, llm_pb2, operator_pb2

CANCEL_TIMEOUT_S = 300.0
"""Two hundred runs, of which each may have to be looked for."""


class OperatorCalls(UnaryCalls):
    _operating: Any

    def tenant_runs(
        self, wanted: operator_pb2.OperatorListRunsRequest | None = None
    ) -> operator_pb2.OperatorListRunsResponse:
        """Return a page of the runs of all users of the tenant, the one that began last first."""
        return self._send(self._operating.ListRuns, wanted or operator_pb2.OperatorListRunsRequest())

    def tenant_run(self, run_id: str, *, include_events: bool = False) -> operator_pb2.OperatorGetRunResponse:
        """Return a run of any user of the tenant; its events have texts with the scope `read_content` alone."""
        request = operator_pb2.OperatorGetRunRequest(run_id=run_id, include_events=include_events)
        return self._send(self._operating.GetRun, request)

    def cancel_runs(
        self, run_ids: Sequence[str] = (), *, matching: operator_pb2.OperatorListRunsRequest | None = None
    ) -> operator_pb2.CancelRunsResponse:
        """Stop runs by their ids, or a page of those that match; say for each what became of it."""
        request = operator_pb2.CancelRunsRequest(run_ids=run_ids, filter=matching)
        return self._send(self._operating.CancelRuns, request, CANCEL_TIMEOUT_S)

    def providers(self) -> list[llm_pb2.ProviderHealth]:
        """Return how the providers do, as the replica of the gateway that answers has seen it."""
        reply: llm_pb2.ListProvidersResponse = self._send(self._operating.ListProviders, llm_pb2.ListProvidersRequest())
        return list(reply.providers)

    def limits(self, user: str = "", *, key: str = "", agent_key: str = "") -> limits_pb2.GetLimitsResponse:
        """Return the limits in force for a user of the tenant, oneself where none is named, with what is used of each;
        `missing` names the services that did not answer."""
        request = limits_pb2.GetLimitsRequest(user=user, key=key, agent_key=agent_key)
        return self._send(self._operating.GetLimits, request)

    def replicas(self) -> list[operator_pb2.Replica]:
        """Return the replicas that have runs of the tenant, and the one that answers."""
        reply: operator_pb2.ListReplicasResponse = self._send(
            self._operating.ListReplicas, operator_pb2.ListReplicasRequest()
        )
        return list(reply.replicas)
