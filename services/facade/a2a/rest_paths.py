"""Maps HTTP+JSON paths to operations."""

from __future__ import annotations

import re
from typing import Any

from aiohttp import web

from services.facade.a2a.protocol import BAD_PARAMS, NO_METHOD, A2aError, Call, parse_object, read_json, use_json_names

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
_OF_PUSH = {
    ("POST", False): "CreateTaskPushNotificationConfig",
    ("GET", False): "ListTaskPushNotificationConfigs",
    ("GET", True): "GetTaskPushNotificationConfig",
    ("DELETE", True): "DeleteTaskPushNotificationConfig",
}
"""Operation by HTTP method and by whether the path names a config."""

_TASK_PATH = re.compile(r"tasks/([^/:]+)(:[a-z]+)?")
_PUSH_PATH = re.compile(r"tasks/([^/:]+)/pushNotificationConfigs(?:/([^/]+))?/?")


async def read_rest_call(request: web.Request) -> Call:
    """Return the operation that an HTTP+JSON request names."""
    operation = request.match_info["operation"]
    params: dict[str, Any] = {}
    if match := _PUSH_PATH.fullmatch(operation):
        method = _OF_PUSH.get((request.method, bool(match[2])))
        params = {"taskId": match[1]} | ({"id": match[2]} if match[2] else {})
    elif match := _TASK_PATH.fullmatch(operation):
        method = _OF_TASK.get((request.method, match[2] or ""))
        params = {"id": match[1]}
    else:
        method = _PATHS.get((request.method, operation))
    if method is None:
        raise A2aError(NO_METHOD, f"no operation {request.method} {operation[:128]}")
    if method.startswith(("Send", "Create")):
        return Call(method, use_json_names(parse_object(await read_json(request))) | params)
    query: dict[str, Any] = dict(request.query)
    if "pageSize" in query:
        if not query["pageSize"].isascii() or not query["pageSize"].isdigit():
            raise A2aError(BAD_PARAMS, "pageSize: must be a whole number")
        query["pageSize"] = int(query["pageSize"])
    if "includeArtifacts" in query:
        query["includeArtifacts"] = query["includeArtifacts"] == "true"
    return Call(method, query | params)
