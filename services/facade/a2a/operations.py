"""Dispatches A2A operations by name, independent of the binding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import grpc

from services.facade.a2a import push_configs
from services.facade.a2a.message import parse_message
from services.facade.a2a.protocol import NO_EXTENDED_CARD, NO_METHOD, A2aError
from services.facade.a2a.push_configs import PushConfigs
from services.facade.a2a.task_view import TaskView
from services.facade.a2a.tasks import Tasks
from services.facade.faces.attachments.uploads import Uploads

STREAMING = frozenset({"SendStreamingMessage", "SubscribeToTask"})


class Operations:
    def __init__(self, tasks: Tasks, push: PushConfigs) -> None:
        self._tasks = tasks
        self._push = push

    @classmethod
    def from_peers(cls, peers: Mapping[str, grpc.aio.Channel]) -> Operations:
        push = PushConfigs(peers["memory"])
        return cls(Tasks(peers["orchestrator"], peers["memory"], Uploads(peers["tools"]), push), push)

    async def answer_call(
        self, agent_key: str, method: str, params: dict[str, Any], base_url: str = ""
    ) -> dict[str, Any]:
        """Run a unary operation and return the result message in protobuf's JSON form.

        `base_url` is the prefix of the URLs of files in the result.
        """
        match method:
            case "SendMessage":
                view = TaskView(base_url=base_url)
                await self._tasks.send_message(agent_key, parse_message(params), view)
                return {"task": view.build_task()}
            case "GetTask":
                return await self._tasks.get_task(agent_key, params.get("id"), base_url)
            case "CancelTask":
                return await self._tasks.cancel_task(agent_key, params.get("id"), base_url)
            case "ListTasks":
                return await self._tasks.list_tasks(agent_key, params, base_url)
            case "GetExtendedAgentCard":
                raise A2aError(NO_EXTENDED_CARD, "there is one card, for callers with a credential")
            case _ if method in push_configs.OPERATIONS:
                run = await self._tasks.find_run(agent_key, params.get("taskId"))
                return await self._configure_push(run.run_id, method, params)
            case _:
                raise A2aError(NO_METHOD, f"no method {method[:64]!r}")

    async def _configure_push(self, task_id: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "CreateTaskPushNotificationConfig":
                return await self._push.put(task_id, push_configs.parse_push_config(params))
            case "GetTaskPushNotificationConfig":
                return await self._push.get(task_id, params.get("id"))
            case "DeleteTaskPushNotificationConfig":
                return await self._push.delete(task_id, params.get("id"))
            case _:
                return await self._push.list_all(task_id)

    async def follow_task(self, agent_key: str, method: str, params: dict[str, Any], view: TaskView) -> None:
        """Run one of the STREAMING operations; `view` receives the task's events until it ends or waits."""
        if method == "SubscribeToTask":
            await self._tasks.subscribe(agent_key, params.get("id"), view)
        else:
            # returnImmediately concerns unary replies only; a stream always delivers events as they come.
            sent = replace(parse_message(params), returns_immediately=False)
            await self._tasks.send_message(agent_key, sent, view)
        if not view.is_over:
            view.send_status(view.fold.last_seq)
