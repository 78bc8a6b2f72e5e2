"""A minimal DNS server for a cluster, run in a pod: `dns.py API_URL FOLDER`; FOLDER has the files `token` and
`ca.crt`.

Services and their pods have A records and no others; unknown names are NXDOMAIN. CoreDNS does the same and more.
"""

import json
import socketserver
import ssl
import struct
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

DOMAIN = "svc.cluster.local"

PORT = 53

A = 1

records: dict[str, list[str]] = {}
"""Addresses by name."""


def follow(api: str, folder: Path) -> None:
    """Keep `records` equal to the API server's services and endpoints, half a second late."""
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    context.check_hostname = False  # the server's certificate is its own authority
    token = (folder / "token").read_text().strip()

    def read(path: str) -> list[dict[str, Any]]:
        request = urllib.request.Request(f"{api}{path}", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, context=context, timeout=10) as response:
            return json.load(response)["items"]

    while True:
        try:
            found = resolve_all(read("/api/v1/services"), read("/apis/discovery.k8s.io/v1/endpointslices"))
        except (OSError, ValueError) as error:
            sys.stderr.write(f"{error}\n")
        else:
            records.clear() if not found else records.update(found)
            for gone in records.keys() - found.keys():
                del records[gone]
        time.sleep(0.5)


def resolve_all(services: list[dict[str, Any]], slices: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the addresses of each service, of the pods of a headless service, and of each named pod."""
    found: dict[str, list[str]] = {}
    headless, unready = set[str](), set[str]()
    for entry in services:
        name = _name(entry["metadata"]["name"], entry)
        address = entry["spec"].get("clusterIP", "None")
        found[name] = [] if address == "None" else [address]
        headless |= {name} if address == "None" else set()
        unready |= {name} if entry["spec"].get("publishNotReadyAddresses") else set()
    for entry in slices:
        name = _name(entry["metadata"]["labels"].get("kubernetes.io/service-name", ""), entry)
        for end in entry.get("endpoints") or []:
            if not end["conditions"].get("ready") and name not in unready:
                continue
            if name in headless:
                found[name].extend(end["addresses"])
            if end.get("hostname"):
                found.setdefault(f"{end['hostname']}.{name}", []).extend(end["addresses"])
    return found


def _name(service: str, item: dict[str, Any]) -> str:
    return f"{service}.{item['metadata']['namespace']}.{DOMAIN}"


def answer(query: bytes) -> bytes:
    at, labels = 12, list[str]()
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode().lower())
        at += 1 + query[at]
    (kind,) = struct.unpack(">H", query[at + 1 : at + 3])
    addresses = records.get(".".join(labels))
    found = addresses if addresses and kind == A else []
    flags = 0x8580 | (3 if addresses is None else 0)
    head = query[:2] + struct.pack(">HHHHH", flags, 1, len(found), 0, 0)
    body = [b"\xc0\x0c" + struct.pack(">HHIH", A, 1, 5, 4) + bytes(map(int, entry.split("."))) for entry in found]
    return head + query[12 : at + 5] + b"".join(body)


class Datagram(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        data, socket = self.request
        socket.sendto(answer(data), self.client_address)


class Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        (size,) = struct.unpack(">H", self.rfile.read(2))
        response = answer(self.rfile.read(size))
        self.wfile.write(struct.pack(">H", len(response)) + response)


if __name__ == "__main__":
    threading.Thread(target=follow, args=(sys.argv[1], Path(sys.argv[2])), daemon=True).start()
    connections = socketserver.ThreadingTCPServer(("", PORT), Connection)
    threading.Thread(target=connections.serve_forever, daemon=True).start()
    socketserver.ThreadingUDPServer(("", PORT), Datagram).serve_forever()
