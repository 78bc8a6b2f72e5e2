"""gRPC over HTTP/2 on asyncio, with grpc.aio's interfaces.

The `h2` library keeps the connection's state; DATA frames are handled here (docs/decisions/0009).
"""
