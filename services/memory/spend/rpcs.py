"""SpendService: the RPCs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

from headrace.errors import InvalidRequest
from headrace.v1 import spend_pb2
from headrace.v1.spend_pb2_grpc import SpendServiceServicer
from services.memory.spend.days import format_day, parse_days
from services.memory.storage.spend import ROWS_MAX, SpendGroup, SpendQuery
from services.runtime.auth import identity

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.memory.storage.engine import Engine

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

_COLUMNS = {"day": "day", "user": "user_name", "agent": "agent_key", "model": "model", "key": "credential"}
"""Columns of the store by the words of `group_by`."""

_FIELDS = {"user_name": "user", "credential": "key"}
"""Fields of a row by columns with another name."""


class SpendService(SpendServiceServicer):
    def __init__(self, engine: Engine, clock: Callable[[], int]) -> None:
        """`clock` tells Unix milliseconds."""
        self._engine = engine
        self._clock = clock

    async def GetUsage(self, request: spend_pb2.GetUsageRequest, context: Context) -> spend_pb2.GetUsageResponse:
        query = _make_query(request, self._clock())
        answer = await self._engine.spend.sum_spend(query)
        return spend_pb2.GetUsageResponse(
            rows=map(_make_row, answer.groups[:ROWS_MAX]),
            total=_make_row(SpendGroup({}, answer.total)),
            is_cut=len(answer.groups) > ROWS_MAX,
            from_day=format_day(query.first_day),
            to_day=format_day(query.last_day),
        )


def _make_query(request: spend_pb2.GetUsageRequest, now: int) -> SpendQuery:
    """Raises InvalidRequest; PermissionDenied where the caller may see only what is their own."""
    if unknown := set(request.group_by) - _COLUMNS.keys():
        raise InvalidRequest.of("groupBy", f"{min(unknown)!r}: expected some of {', '.join(_COLUMNS)}")
    if request.scope not in ("", "own", "tenant"):
        raise InvalidRequest.of("scope", f"{request.scope!r}: expected own or tenant")
    is_whole = request.scope == "tenant"
    caller = identity.require_scope("operate") if is_whole else identity.require_identity()
    if request.user and not is_whole:
        raise InvalidRequest.of("user", "is for scope tenant")
    first, last = parse_days(request.from_day, request.to_day, now)
    wanted = {
        "user_name": request.user if is_whole else caller.user,
        "agent_key": request.agent_key,
        "model": request.model,
        "credential": request.key,
    }
    return SpendQuery(
        caller.tenant,
        first,
        last,
        {_COLUMNS[word] for word in request.group_by},
        {column: value for column, value in wanted.items() if value},
    )


def _make_row(group: SpendGroup) -> spend_pb2.UsageRow:
    total = group.total
    row = spend_pb2.UsageRow(
        input_tokens=total.input_tokens,
        output_tokens=total.output_tokens,
        cached_tokens=total.cached_tokens,
        model_calls=total.model_calls,
        cost_nano_usd=total.cost_nano_usd,
    )
    for column, value in group.columns.items():
        setattr(row, _FIELDS.get(column, column), format_day(value) if column == "day" else value)
    return row
