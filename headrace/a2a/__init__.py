"""Generated from protos/headrace/a2a by `make gen`; never edited. The wire format of the A2A protocol.

The stubs use their own descriptor pool: the default pool accepts each name once, and a2a-sdk registers the same
names.
"""

from google.protobuf import empty_pb2, struct_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
for _file in (empty_pb2, struct_pb2, timestamp_pb2):
    POOL.AddSerializedFile(_file.DESCRIPTOR.serialized_pb)
