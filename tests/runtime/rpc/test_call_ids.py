"""What is accepted from callers, and what is forwarded with their calls: request ids, and credentials for MCP
servers."""

import uuid

import pytest
import structlog

from services.runtime.rpc import call_ids
from services.runtime.rpc.call_ids import ensure_request_id


@pytest.mark.parametrize("given", ["a", "0af7651916cd43dd8448eb211c80319c", "Root=1-67:a/b+c=", "x" * 128])
def test_a_harmless_request_id_is_kept(given: str) -> None:
    assert ensure_request_id(given) == given


@pytest.mark.parametrize("given", [None, "", "a\n", "a b", "ä", '"', "x" * 129])
def test_any_other_request_id_is_replaced_by_a_new_one(given: str | None) -> None:
    new_request_id = ensure_request_id(given)
    assert str(uuid.UUID(new_request_id)) == new_request_id
    assert ensure_request_id(given) != new_request_id


KEY = "x-mcp-search-authorization"


def test_users_mcp_credentials_are_forwarded_and_found_by_server() -> None:
    call_ids.adopt_metadata(
        [("x-request-id", "r"), (KEY, "Bearer ann"), ("authorization", "Bearer other"), ("x-mcp-search", "x")]
    )
    assert call_ids.forward_metadata() == (("x-request-id", "r"), (KEY, "Bearer ann"))
    assert call_ids.find_mcp_credential("Search") == "Bearer ann"
    assert call_ids.find_mcp_credential("files") == ""
    call_ids.adopt_metadata([])
    assert call_ids.find_mcp_credential("search") == ""


@pytest.mark.parametrize("value", ["a\nb", "ä", "\x00"])
def test_a_credential_that_is_no_valid_header_is_omitted(value: str) -> None:
    assert call_ids.find_mcp_credentials([("X-MCP-Search-Authorization", value), (KEY, "Bearer ann")]) == (
        (KEY, "Bearer ann"),
    )


def test_credentials_that_are_too_long_are_dropped_and_not_logged() -> None:
    with structlog.testing.capture_logs() as logs:
        assert call_ids.find_mcp_credentials([(KEY, "s3cret" * 1000)]) == ()
    assert logs[0]["keys"] == [KEY]
    assert "s3cret" not in str(logs)
