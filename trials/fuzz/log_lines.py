"""The log's line reader: any bytes are a line or not, and encoding and decoding a line gives the same line."""

from headrace.errors import KeyUnavailable
from services.memory.log.lines import Unknown, decode_line, encode_line


def check(data: bytes) -> None:
    """Decode the data; decode again after encoding the result."""
    try:
        line = decode_line(data)
    except KeyUnavailable:  # it looks like an encrypted line
        return
    if line is None or isinstance(line, Unknown):
        return
    assert decode_line(encode_line(line).removesuffix(b"\n")) == line
