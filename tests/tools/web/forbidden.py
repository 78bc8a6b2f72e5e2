"""URLs that must not connect anywhere. `{port}` is where the canaries listen, on 127.0.0.1 and ::1."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address


def _words(text: str) -> list[str]:
    """The words between single spaces; some have other white space in them."""
    return text.split(" ")


V4 = _words(
    "0.0.0.0 0.0.0.1 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.0.0.2 "
    "127.1.2.3 127.255.255.254 168.63.129.16 169.254.0.1 169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.255 "
    "192.0.0.1 192.0.0.8 192.0.0.192 192.0.2.1 192.31.196.1 192.52.193.1 192.88.99.1 192.168.0.1 192.168.255.255 "
    "192.175.48.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 224.0.1.1 233.252.0.1 "
    "239.255.255.250 240.0.0.1 254.0.0.1 255.255.255.255"
)

V6 = _words(
    ":: ::1 ::2 ::7f00:1 ::127.0.0.1 0:0:0:0:0:0:0:1 0000:0000:0000:0000:0000:0000:0000:0001 0::1 "
    "::ffff:0:127.0.0.1 64:ff9b:1::1 64:ff9b:1:fffe::7f00:1 100::1 2001::1 2001:0:7f00:1:: "
    "2001:0:4136:e378:8000:63bf:80ff:fffe 2001:2::1 2001:10::1 2001:20::1 2001:db8::1 2002::1 2002:7f00:1:: "
    "2002:7f00:1::1 2002:a00:1::1 2002:c0a8:1:: 2002:a9fe:a9fe::1 2620:4f:8000::1 3fff::1 4000::1 5f00::1 8000::1 "
    "fc00::1 fd00::1 fd00:ec2::254 fdff:ffff::1 fe80::1 fe80::5efe:127.0.0.1 2a00::5efe:7f00:1 "
    "2a00::200:5efe:7f00:1 febf::1 fec0::1 ff00::1 ff02::1 ff02::fb ff05::2 ff0e::1"
)

INNER = ("127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.1.1", "100.64.0.1", "0.0.0.0", "224.0.0.1")

OTHER_FORMS = _words(
    "2130706433 0x7f000001 0X7F000001 017700000001 0x7f.0.0.1 0x7f.1 0177.0.0.1 0177.1 127.1 127.0.1 127.0x1 "
    "0127.0.0.1 00000177.0.0.1 127.00.0.1 127.0.0.01 127.0.0.0x1 0x7f.0x0.0x0.0x1 127.0.0.1. 127.0.0.1.. 127.1. "
    "2130706433. 0x7f000001. 0 0x0 00 0. 1 256.0.0.1 127.0.0.256 4294967297 6425673729 127.0.0.1.5 1.127.0.0.1 "
    "0xa9fea9fe 2852039166 0xA9.254.169.254 169.254.43518 0x 127.0x 127.0.0.0x ١٢٧.٠.٠.١ １２７.０.０.１ ①②⑦.⓪.⓪.① "
    "127。0。0。1 127．0．0．1 127｡0｡0｡1 １２７。１ 127.0.0.1\u00ad 127.0.0.1\u200b 𝟏𝟐𝟕.𝟎.𝟎.𝟏 ⑫７.0.0.1"
)

NAMES = _words(
    "localhost LOCALHOST LocalHost localhost. localhost.. localhost.localdomain ip6-localhost ｌｏｃａｌｈｏｓｔ "
    "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ loc\u00adalhost lo\u200bcalhost loopback metadata.internal wiki.corp a..b -x-.com x_.-y.com "
    "%6cocalhost local%68ost 127.0.0.1%00 127.0.0.1%2eexample.com %31%32%37.0.0.1 127%2e0%2e0%2e1 localhost%20 "
    "localhost%0d%0a 127.0.0.1%23 127.0.0.1%2f.example.com"
)

ODD = (
    "http://user@127.0.0.1:{port}/",
    "http://user:pass@127.0.0.1:{port}/",
    "http://example.com@127.0.0.1:{port}/",
    "http://example.com:80@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}@site.test/",
    "http://site.test%40127.0.0.1:{port}/",
    "http://site.test#@127.0.0.1:{port}/",
    "http://:@127.0.0.1:{port}/",
    "http://@127.0.0.1:{port}/",
    "http://a@b@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@site.test/",
    "http://site.test\\@127.0.0.1:{port}/",
    "http://site.test\\.127.0.0.1:{port}/",
    "http:\\\\127.0.0.1:{port}\\",
    "http:/127.0.0.1:{port}/",
    "http:127.0.0.1:{port}/",
    "http:///127.0.0.1:{port}/",
    "http:////127.0.0.1:{port}/",
    "http://?@127.0.0.1:{port}/",
    "http://127.0.0.1 :{port}/",
    " http://127.0.0.1:{port}/",
    "http://127.0.0.1:{port}/\r\nHost: x",
    "http://127.0.0.1:{port}\t/",
    "ht\ntp://127.0.0.1:{port}/",
    "http://127.0.0.1\n:{port}/",
    "http://local\thost:{port}/",
    "http://localhost\x00.site.test:{port}/",
    "http://[127.0.0.1]:{port}/",
    "http://[::1:{port}/",
    "http://::1:{port}/",
    "http://[::1]x:{port}/",
    "http://[::1].:{port}/",
    "http://[::1%25lo]:{port}/",
    "http://[::1%lo]:{port}/",
    "http://[::1%251]:{port}/",
    "http://[fe80::1%25eth0]:{port}/",
    "http://[::ffff:127.0.0.1%25lo]:{port}/",
    "http://[2a00::1%25lo]:{port}/",
    "http://[v1.127.0.0.1]:{port}/",
    "http://127.0.0.1:{port}0000/",
    "http://127.0.0.1:-1/",
    "http://127.0.0.1:0/",
    "http://127.0.0.1:0x50/",
    "http://127.0.0.1:٨٠/",
    "//127.0.0.1:{port}/",
    "127.0.0.1:{port}",
    "localhost:{port}/",
    "",
    "/",
    "?",
)

SCHEMES = _words(
    "ftp file gopher dict ldap ldaps tftp sftp ssh telnet smtp redis ws wss jar data javascript blob about "
    "view-source netdoc phar expect php http+unix unix httpx https+insecure"
)


def urls() -> Iterator[str]:
    """All of them, each once."""
    yield from (f"http://{address}:{{port}}/" for address in V4)
    yield from (f"https://{address}:{{port}}/" for address in V4[:6])
    yield from (f"http://[{address}]:{{port}}/" for address in V6)
    for inner in INNER:
        for prefix in ("::ffff:", "0:0:0:0:0:ffff:", "64:ff9b::"):
            yield f"http://[{prefix}{inner}]:{{port}}/"
        high, low = divmod(int(IPv4Address(inner)), 1 << 16)
        yield f"http://[::ffff:{high:x}:{low:x}]:{{port}}/"
        yield f"http://[2002:{high:x}:{low:x}::1]:{{port}}/x"
    yield from (f"http://{form}:{{port}}/" for form in OTHER_FORMS)
    yield from (f"http://{name}:{{port}}/" for name in NAMES)
    yield from ODD
    yield from (f"{scheme}://127.0.0.1:{{port}}/" for scheme in SCHEMES)
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
