"""A request's bytes and its destination."""

import pytest

from services.llm_gateway.http.request import Origin, encode_post, split_url


@pytest.mark.parametrize(
    ("url", "origin", "authority", "path"),
    [
        ("https://api.example/v1/chat", Origin("api.example", 443, True), "api.example", "/v1/chat"),
        ("http://api.example/v1", Origin("api.example", 80, False), "api.example", "/v1"),
        ("http://api.example", Origin("api.example", 80, False), "api.example", "/"),
        ("http://api.example:443/v1", Origin("api.example", 443, False), "api.example:443", "/v1"),
        ("http://[::1]:8000/v1", Origin("::1", 8000, False), "[::1]:8000", "/v1"),
        ("https://wässer.example/v1", Origin("xn--wsser-gra.example", 443, True), "xn--wsser-gra.example", "/v1"),
        ("http://a/v1/mühle/%20/p:x", Origin("a", 80, False), "a", "/v1/m%C3%BChle/%20/p:x"),
    ],
)
def test_an_address_is_an_origin_and_a_path(url: str, origin: Origin, authority: str, path: str) -> None:
    assert split_url(url) == (origin, path)
    assert origin.authority == authority


@pytest.mark.parametrize(
    "url", ["http://[::1/v1", "http://a:port/v1", "http://a:70000/v1", "http:///v1", "http://ü..x"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        split_url(url)


def test_a_request_is_its_head_and_its_body_as_they_are() -> None:
    body = b'{"a":1}'
    head, sent = encode_post(Origin("a", 80, False), "/v1", {"Authorization": "Bearer k"}, body)
    assert sent is body
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v1 HTTP/1.1"
    assert lines[-2:] == [b"", b""]
    assert {b"Host: a", b"Authorization: Bearer k", b"Content-Length: 7", b"Accept-Encoding: identity"} < {*lines}


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nb", "a\x00", "\u6c34"])
def test_a_value_that_would_be_another_header_is_refused_unseen(value: str) -> None:
    with pytest.raises(ValueError, match="Authorization") as caught:
        encode_post(Origin("a", 80, False), "/v1", {"Authorization": value}, b"")
    assert value not in str(caught.value)
