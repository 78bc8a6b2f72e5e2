"""Push notification configs in all bindings, with a memory that applies the real rules."""

from pathlib import Path
from typing import Any

import pytest

from headrace.a2a import a2a_pb2
from headrace.v1 import agent_pb2
from tests.support.facade.a2a import URL, message, post, rpc, serving, stream
from tests.support.facade.openai_api import make_run
from tests.support.facade.scripted import RUN, Script, Suite, answering, suite

CONFIG: dict[str, Any] = {
    "id": "c",
    "url": "https://hooks.example/in",
    "token": "t",
    "authentication": {"scheme": "Bearer", "credentials": "s3cret"},
}
SHOWN = {"id": "c", "taskId": RUN, "url": CONFIG["url"], "authentication": {"scheme": "Bearer"}}
PATH = f"{URL}/tasks/{RUN}/pushNotificationConfigs"


def script() -> Script:
    return Script(query=answering("x"), publish=["a2a"], run=make_run("running"))


async def call(facade: Suite, verb: str, **params: str | dict[str, str]) -> Any:
    name = f"{verb}TaskPushNotificationConfig" + ("s" if verb == "List" else "")
    _, answer = await post(facade, rpc(name, {"taskId": RUN} | params))
    return answer.get("result", answer.get("error", {}).get("code"))


async def test_a_push_config_is_created_read_without_secrets_listed_and_deleted(tmp_path: Path) -> None:
    async with suite(tmp_path, script()) as facade:
        assert await call(facade, "Create", **CONFIG) == SHOWN
        assert await call(facade, "Get", id="c") == SHOWN
        assert await call(facade, "List") == {"configs": [SHOWN], "nextPageToken": ""}
        for _ in range(2):
            assert await call(facade, "Delete", id="c") == {}
        assert await call(facade, "Get", id="c") == -32001


async def test_request_fields_may_use_their_proto_names(tmp_path: Path) -> None:
    config = {"context_id": "", "message_id": "m"}, {"task_push_notification_config": CONFIG}
    params = {"message": {"role": "ROLE_USER", "parts": [{"data": {"a_b": 1}}]} | config[0], "configuration": config[1]}
    async with suite(tmp_path, script()) as facade:
        await post(facade, rpc("SendMessage", params))
        _, answer = await post(facade, rpc("ListTaskPushNotificationConfigs", {"task_id": RUN}))
        assert answer["result"]["configs"] == [SHOWN]
        query = next(request for request in facade.script.requests if isinstance(request, agent_pb2.QueryRequest))
        assert (query.request_id, query.message) == ("m", '{"a_b":1}')


async def test_the_http_binding_serves_push_configs_as_resources(tmp_path: Path) -> None:
    async with suite(tmp_path, script()) as facade:
        assert await post(facade, CONFIG, PATH) == (200, SHOWN)
        for path, expected in ((PATH, {"configs": [SHOWN], "nextPageToken": ""}), (f"{PATH}/c", SHOWN)):
            async with facade.http.get(path) as response:
                assert (response.status, await response.json()) == (200, expected)
        async with facade.http.delete(f"{PATH}/c") as response:
            assert response.status == 200
        async with facade.http.get(f"{PATH}/c") as response:
            assert response.status == 404


async def test_the_grpc_binding_serves_push_configs(tmp_path: Path) -> None:
    async with serving(tmp_path, script()) as (_, agent):
        info = a2a_pb2.AuthenticationInfo(scheme="Bearer", credentials="s3cret")
        config: dict[str, Any] = {
            "tenant": "helper",
            "task_id": RUN,
            "id": "c",
            "url": CONFIG["url"],
            "authentication": info,
        }
        await agent.CreateTaskPushNotificationConfig(a2a_pb2.TaskPushNotificationConfig(**config))
        named: dict[str, Any] = {"tenant": "helper", "task_id": RUN}
        listed = await agent.ListTaskPushNotificationConfigs(a2a_pb2.ListTaskPushNotificationConfigsRequest(**named))
        stored = await agent.GetTaskPushNotificationConfig(
            a2a_pb2.GetTaskPushNotificationConfigRequest(**named, id="c")
        )
        assert [*listed.configs] == [stored]
        assert (stored.url, stored.authentication.scheme, stored.authentication.credentials) == (
            CONFIG["url"],
            "Bearer",
            "",
        )
        await agent.DeleteTaskPushNotificationConfig(a2a_pb2.DeleteTaskPushNotificationConfigRequest(**named, id="c"))


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
async def test_a_message_can_carry_the_push_config_of_its_task(tmp_path: Path, method: str) -> None:
    params = message() | {"configuration": {"taskPushNotificationConfig": CONFIG}}
    async with suite(tmp_path, script()) as facade:
        if method == "SendMessage":
            await post(facade, rpc(method, params))
        else:
            await stream(facade, method, params)
        assert (await call(facade, "List"))["configs"] == [SHOWN]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"url": "https://127.0.0.1/"}, "url"),
        ({"url": ""}, "configuration.taskPushNotificationConfig.url"),
        ({"url": CONFIG["url"], "token": "a b"}, "token"),
        ({"url": CONFIG["url"], "authentication": "x"}, "authentication"),
        ("x", "configuration.taskPushNotificationConfig"),
    ],
)
async def test_a_message_with_an_invalid_push_config_starts_no_run(tmp_path: Path, config: Any, field: str) -> None:
    params = message() | {"configuration": {"taskPushNotificationConfig": config}}
    async with suite(tmp_path, script()) as facade:
        _, answer = await post(facade, rpc("SendMessage", params))
        assert answer["error"]["code"] == -32602
        assert field in answer["error"]["message"]
        assert not [request for request in facade.script.requests if isinstance(request, agent_pb2.QueryRequest)]
