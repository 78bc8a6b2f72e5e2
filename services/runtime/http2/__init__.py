"""gRPC over HTTP/2 on asyncio, with a server and a channel that generated code uses as it uses grpc.aio's.

The `h2` library keeps the connection's state; DATA frames are read and written here. decisions/0009 says why.
"""
