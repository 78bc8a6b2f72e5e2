"""The stubs of the protocol beside others' of the same names, as a2a-sdk has them."""

import subprocess
import sys

import pytest

OURS = """
from headrace.a2a import a2a_pb2
assert a2a_pb2.Message(message_id="m").SerializeToString() == b"\\n\\x01m"
"""
THEIRS = """
from google.protobuf import empty_pb2, struct_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default
file = FileDescriptorProto(name="a2a.proto", package="lf.a2a.v1")
file.message_type.add(name="Message").field.add(name="other", number=1, label=1, type=9)
Default().AddSerializedFile(file.SerializeToString())
"""


@pytest.mark.parametrize("order", [(OURS, THEIRS), (THEIRS, OURS)])
def test_one_process_has_both(order: tuple[str, str]) -> None:
    subprocess.run([sys.executable, "-c", "".join(order)], check=True, timeout=100)
