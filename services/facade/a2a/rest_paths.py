"""HTTP+JSON's paths as operations."""

from __future__ import annotations

import re
from typing import Any

from aiohttp import web

from services.facade.a2a.operations import PUSH
from services.facade.a2a.protocol import BAD_PARAMS, NO_METHOD, A2aError, Call, parse_object, read_json

_PATHS = {
    ("POST", "message:send"): "SendMessage",
    ("POST", "message:stream"): "SendStreamingMessage",
    ("GET", "tasks"): "ListTasks",
    ("GET", "extendedAgentCard"): "GetExtendedAgentCard",
}
_OF_TASK = {
    ("GET", ""): "GetTask",
    ("POST", ":cancel"): "CancelTask",
    ("POST", ":subscribe"): "SubscribeToTask",
    ("GET", ":subscribe"): "SubscribeToTask",
}
_TASK_PATH = re.compile(r"tasks/([^/:]+)(:[a-z]+)?(/pushNotificationConfigs.*)?")


async def read_rest_call(request: web.Request) -> Call:
    """Read the operation that a request of HTTP+JSON names."""
    operation = request.match_info["operation"]
    if found := _TASK_PATH.fullmatch(operation):
        method = next(iter(PUSH)) if found[3] else _OF_TASK.get((request.method, found[2] or ""))
        params: dict[str, Any] = {"id": found[1]}
    else:
        method, params = _PATHS.get((request.method, operation)), {}
    if method is None:
        raise A2aError(NO_METHOD, f"no operation {request.method} {operation[:128]}")
    if method.startswith("Send"):
        return Call(method, parse_object(await read_json(request)))
    query: dict[str, Any] = dict(request.query)
    if "pageSize" in query:
        if not query["pageSize"].isascii() or not query["pageSize"].isdigit():
            raise A2aError(BAD_PARAMS, "pageSize: must be a whole number")
        query["pageSize"] = int(query["pageSize"])
    if "includeArtifacts" in query:
        query["includeArtifacts"] = query["includeArtifacts"] == "true"
    return Call(method, query | params)
