"""Which addresses are public, and what an allow-list opens."""

from ipaddress import ip_address

import pytest

from services.runtime.net.allow_list import find_refusal, parse_allow_list

PUBLIC = (
    "1.1.1.1",
    "8.8.8.8",
    "172.32.0.1",
    "192.0.3.1",
    "100.128.0.1",
    "2606:4700::1111",
    "2a00:1450::1",
    "64:ff9b::808:808",
)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert find_refusal(ip_address(address)) is None


def test_an_ipv4_address_in_ipv6_form_is_treated_like_itself() -> None:
    assert find_refusal(ip_address("::ffff:1.1.1.1")) is None
    assert find_refusal(ip_address("::ffff:10.0.0.1")) == "a private address"


@pytest.mark.parametrize(
    ("entry", "host", "port", "holds"),
    [
        ("wiki.corp", "wiki.corp", 8080, True),
        ("Wiki.Corp", "wiki.corp.", 80, True),
        ("wiki.corp:8080", "wiki.corp", 8080, True),
        ("wiki.corp:8080", "wiki.corp", 80, False),
        ("wiki.corp", "x.wiki.corp", 80, False),
        ("10.0.0.1:80", "10.0.0.1", 80, True),
        ("[fd00::1]:80", "fd00::1", 80, True),
        ("fd00:0::1", "fd00::1", 443, True),
        ("", "", 80, False),
    ],
)
def test_an_allow_list_entry_opens_a_host_by_name_and_port(entry: str, host: str, port: int, holds: bool) -> None:
    assert parse_allow_list(entry).has_host(host, port) is holds


def test_an_allow_list_network_opens_addresses_in_any_form() -> None:
    allow = parse_allow_list("10.1.0.0/16, fd00::/8")
    assert allow.has_address(ip_address("10.1.2.3"), 80)
    assert allow.has_address(ip_address("::ffff:10.1.2.3"), 80)
    assert allow.has_address(ip_address("fd12::1"), 80)
    assert not allow.has_address(ip_address("10.2.0.1"), 80)


@pytest.mark.parametrize("entry", ["10.0.0.1/8", "wiki:port", "wiki:0", "wiki:70000", "/", ":80"])
def test_an_invalid_entry_is_named(entry: str) -> None:
    with pytest.raises(ValueError, match="expected host"):
        parse_allow_list(f"good.corp,{entry}")
