"""Two network namespaces whose link can be cut."""

import socket

import pytest

from trials.chaos.namespaces import PORT, inside, is_possible, network


@pytest.mark.skipif(not is_possible(), reason="network namespaces cannot be made here")
async def test_data_sent_over_a_cut_link_arrives_once_it_is_mended() -> None:
    with network(["a", "b"]) as lan:
        address = (lan.addresses["a"], PORT)
        _, link = await lan.link("b", "a")
        with inside(lan.name("a")):
            server = socket.create_server(address)
        with inside(lan.name("b")):
            client = socket.create_connection(address, timeout=100)
        server.settimeout(10)
        called, _ = server.accept()
        with server, client, called:
            link.cut()
            client.sendall(b"hello")
            called.settimeout(0.5)
            with pytest.raises(TimeoutError):
                called.recv(5)
            link.mend()
            called.settimeout(10)
            assert called.recv(5) == b"hello"
