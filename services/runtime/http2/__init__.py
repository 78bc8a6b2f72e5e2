"""gRPC over HTTP/2 on asyncio: a server and a channel that generated code accepts as it accepts grpc.aio's.

The `h2` library owns the connection: settings, HPACK, stream states, what may be sent. What runs for each message is
ours: DATA frames are read and written here. decisions/0009 says why, what this does not do, and when to go back.
"""
