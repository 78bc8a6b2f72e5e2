"""Every route through both facades: the same request reaches the service, and the same response is returned."""

from pathlib import Path
from typing import Any

from google.protobuf.message_factory import GetMessageClass

from headrace.errors import QueueFull, Unauthenticated
from headrace.v1 import schedule_pb2, tools_pb2
from services.facade.proto_routes import Route, load_routes
from services.runtime.formats.json_form import encode
from tests.support.facade.both import Both, both
from tests.support.facade.messages import UUID, fill_message, parameters
from tests.support.facade.peers import Peer

UNARY = [route for route in load_routes() if route.is_unary]


async def _ask(facades: Both, route: Route, request: Any) -> Any:
    if route.has_body:
        return await facades.ask(route.verb, route.path, encode(request))
    return await facades.ask(route.verb, f"{route.path}?{parameters(request)}")


async def test_a_full_request_is_transferred_and_both_facades_return_the_same_response(tmp_path: Path) -> None:
    async with both(tmp_path, Peer()) as facades:
        for route in UNARY:
            request = fill_message(route.rpc.input_type, "a b水&=+%/", json="[1e2]")
            for reply in (fill_message(route.rpc.output_type), GetMessageClass(route.rpc.output_type)()):
                facades.peer.replies = [reply]
                answer = await _ask(facades, route, request)
                assert answer.status == 200, (route.path, answer.body)
                assert answer.json["code"] == 0
                assert answer.headers["cache-control"] == "no-store"  # whichever header has the credential
            assert facades.peer.heard == [request] * 4, route.path
            facades.peer.heard.clear()


async def test_a_viewport_is_html_or_json(tmp_path: Path) -> None:
    html, view = (
        tools_pb2.GetViewportResponse(html="<p>水"),
        tools_pb2.GetViewportResponse(view='{"big": 12345678901234567890}'),
    )
    async with both(tmp_path, Peer()) as facades:
        for reply, data in ((html, {"html": "<p>水"}), (view, {"big": 12345678901234567890})):
            facades.peer.replies = [reply]
            assert (await facades.ask("GET", "/api/viewport?viewportKey=k")).json["data"] == data


PATH = f"/hooks/{UUID}"
PROOF = [("webhook-id", "e1"), ("webhook-timestamp", "1700000000"), ("webhook-signature", "v1,abc= v1,def=")]
BODY = b'\xef\xbb\xbf {"b" : 1e2,\n"a":"\\ud83e"}\xff'


async def test_a_webhook_post_is_forwarded_unchanged(tmp_path: Path) -> None:
    async with both(tmp_path, Peer()) as facades:
        facades.peer.replies = [schedule_pb2.ReceiveWebhookResponse(status="accepted")]
        answer = await facades.ask("POST", PATH, BODY, PROOF)
        assert (answer.status, answer.json["data"]) == (200, {"status": "accepted"})
        expected = schedule_pb2.ReceiveWebhookRequest(
            schedule_id=UUID, webhook_id="e1", timestamp="1700000000", signature="v1,abc= v1,def=", payload=BODY
        )
        assert facades.peer.heard == [expected] * 2
        facades.peer.heard.clear()
        await facades.ask("POST", "/hooks/x?y=1", b"{}", [("webhook-id", "\xe4")])
        assert facades.peer.heard == [schedule_pb2.ReceiveWebhookRequest(schedule_id="x", payload=b"{}")] * 2


async def test_a_webhook_post_is_refused_as_the_service_refuses_it(tmp_path: Path) -> None:
    async with both(tmp_path, Peer()) as facades:
        for error, status in (Unauthenticated("no"), 401), (QueueFull("many", retry_after_s=5), 429):
            facades.peer.replies = [error]
            answer = await facades.ask("POST", PATH, b"{}", PROOF)
            assert answer.status == status
            assert answer.headers.get("retry-after") == ("5" if status == 429 else None)


async def test_a_large_or_malformed_webhook_post_reaches_no_service(tmp_path: Path) -> None:
    async with both(tmp_path, Peer()) as facades:
        facades.peer.replies = [schedule_pb2.ReceiveWebhookResponse(status="accepted")]
        assert (await facades.ask("POST", PATH, b"1" * 65_536, PROOF)).status == 200
        facades.peer.heard.clear()
        for body, headers, status in (
            (b"1" * 65_537, [], 413),
            (b"{}", [("Content-Type", "text/plain")], 400),
            (b"{}", [("Content-Encoding", "gzip"), ("Content-Type", "application/json")], 400),
            (b"{}", [("webhook-id", "e2")], 400),
        ):
            assert (await facades.ask("POST", PATH, body, [*PROOF, *headers])).status == status, (body[:9], headers)
        assert (await facades.ask("GET", PATH)).status == 405
        assert facades.peer.heard == []
