"""Every route through both facades: the same request reaches the service, and the same answer comes back."""

from pathlib import Path
from typing import Any

from google.protobuf.message_factory import GetMessageClass

from headrace.v1 import tools_pb2
from services.facade.proto_routes import Route, load_routes
from services.runtime.formats.json_form import encode
from tests.support.facade.both import Both, both
from tests.support.facade.messages import fill_message, parameters
from tests.support.facade.peers import Peer

UNARY = [route for route in load_routes() if route.is_unary]


async def _ask(facades: Both, route: Route, request: Any) -> Any:
    if route.has_body:
        return await facades.ask(route.verb, route.path, encode(request))
    return await facades.ask(route.verb, f"{route.path}?{parameters(request)}")


async def test_a_full_request_arrives_whole_and_both_give_the_same_answer(tmp_path: Path) -> None:
    async with both(tmp_path, Peer()) as facades:
        for route in UNARY:
            asked = fill_message(route.rpc.input_type, "a b水&=+%/", json="[1e2]")
            for reply in (fill_message(route.rpc.output_type), GetMessageClass(route.rpc.output_type)()):
                facades.peer.replies = [reply]
                answer = await _ask(facades, route, asked)
                assert answer.status == 200, (route.path, answer.body)
                assert answer.json["code"] == 0
            assert facades.peer.heard == [asked] * 4, route.path
            facades.peer.heard.clear()


async def test_a_view_is_html_or_the_json_itself(tmp_path: Path) -> None:
    html, view = (
        tools_pb2.GetViewportResponse(html="<p>水"),
        tools_pb2.GetViewportResponse(view='{"big": 12345678901234567890}'),
    )
    async with both(tmp_path, Peer()) as facades:
        for reply, data in ((html, {"html": "<p>水"}), (view, {"big": 12345678901234567890})):
            facades.peer.replies = [reply]
            assert (await facades.ask("GET", "/api/viewport?viewportKey=k")).json["data"] == data
