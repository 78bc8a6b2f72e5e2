"""URLs that must not connect anywhere. `{port}` stands for the canaries' port, on 127.0.0.1 and ::1."""

import json
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

KNOWN: dict[str, list[str]] = json.loads(Path(__file__).with_name("forbidden.json").read_text())
"""Addresses, other forms and names of them, whole URLs that are odd, and schemes."""

INNER = ("127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.1.1", "100.64.0.1", "0.0.0.0", "224.0.0.1")


def urls() -> Iterator[str]:
    """Yield every forbidden URL once."""
    yield from (f"http://{address}:{{port}}/" for address in KNOWN["v4"])
    yield from (f"https://{address}:{{port}}/" for address in KNOWN["v4"][:6])
    yield from (f"http://[{address}]:{{port}}/" for address in KNOWN["v6"])
    for inner in INNER:
        for prefix in ("::ffff:", "0:0:0:0:0:ffff:", "64:ff9b::"):
            yield f"http://[{prefix}{inner}]:{{port}}/"
        high, low = divmod(int(IPv4Address(inner)), 1 << 16)
        yield f"http://[::ffff:{high:x}:{low:x}]:{{port}}/"
        yield f"http://[2002:{high:x}:{low:x}::1]:{{port}}/x"
    yield from (f"http://{form}:{{port}}/" for form in KNOWN["other_forms"])
    yield from (f"http://{name}:{{port}}/" for name in KNOWN["names"])
    yield from KNOWN["odd"]
    yield from (f"{scheme}://127.0.0.1:{{port}}/" for scheme in KNOWN["schemes"])
    yield from ("file:///etc/passwd", "data:text/plain,x", "javascript:alert(1)", "mailto:a@b", "about:blank")


RESOLVED = (
    ["127.0.0.1"],
    ["::1"],
    ["0.0.0.0"],
    ["127.0.0.1", "198.51.100.7"],
    ["198.51.100.7", "127.0.0.1"],
    ["198.51.100.7", "::1"],
    ["::ffff:127.0.0.1"],
    ["64:ff9b::7f00:1"],
    ["fe80::1%lo"],
    ["::1%lo"],
    ["10.0.0.1"],
    ["169.254.169.254"],
    ["100.64.0.1"],
    ["fd00::1"],
    ["nonsense"],
    [],
)
"""What a name's owner may answer with. 198.51.100.7 stands for the public web in these tests: it leads nowhere."""
