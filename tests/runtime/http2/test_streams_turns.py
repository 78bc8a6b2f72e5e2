"""The order in which frames are handled and sent, where peers see it."""

from h2.errors import ErrorCodes
from hyperframe.frame import DataFrame, PingFrame, RstStreamFrame, SettingsFrame

from tests.support.http2.victim import victim
from tests.support.http2.wire import call, headers_of, message, opening, peer, window

WINDOW = 0x4
"""SETTINGS_INITIAL_WINDOW_SIZE"""

SMALL = {WINDOW: 500}
BODY = b"x" * 2000


async def test_settings_are_confirmed_before_what_they_allow_is_sent() -> None:
    async with victim() as server, peer(server.port, settings=SMALL) as client:
        await client.send(call(1, "unary", BODY))
        await client.until(DataFrame)
        await client.pong()
        seen = len(client.seen)
        await client.send(SettingsFrame(0, settings={WINDOW: 5000}).serialize())
        await client.until(DataFrame)
        (confirmed, *_) = [frame for frame in client.seen[seen:] if not isinstance(frame, PingFrame)]
        assert isinstance(confirmed, SettingsFrame)
        assert "ACK" in confirmed.flags


async def test_a_window_that_opens_on_a_stream_that_is_reset_in_the_same_read_is_no_error() -> None:
    async with victim() as server, peer(server.port, settings=SMALL) as client:
        await client.send(call(1, "unary", BODY))
        await client.until(DataFrame)
        await client.send(window(1, 10_000), RstStreamFrame(1, error_code=ErrorCodes.CANCEL).serialize())
        await client.send(call(3, "unary", b"next"))
        await client.until(DataFrame)
        await client.pong()
        assert 3 in client.answered()


async def test_what_was_on_its_way_to_a_stream_that_we_have_reset_is_not_answered() -> None:
    async with victim() as server, peer(server.port) as client:
        await client.send(opening(1, headers_of("nothing")), message(1, BODY, end=False))
        await client.until(RstStreamFrame)
        await client.send(*[message(1, BODY, end=False)] * 100)
        assert [frame for frame in await client.pong() if isinstance(frame, RstStreamFrame)] == []
        await client.send(call(3, "unary", b"next"))
        await client.until(DataFrame)
