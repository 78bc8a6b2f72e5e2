"""Generated from protos/headrace/a2a by `make gen`; never edited. The wire of the A2A protocol, which is others'.

The stubs have a pool of their own: the default one takes each name once, and a2a-sdk has the same.
"""

from google.protobuf import empty_pb2, struct_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
for _file in (empty_pb2, struct_pb2, timestamp_pb2):
    POOL.AddSerializedFile(_file.DESCRIPTOR.serialized_pb)
