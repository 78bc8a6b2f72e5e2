"""gRPC over HTTP/2 on asyncio, with grpc.aio's interfaces.

The `h2` library keeps the connection's state; our own code handles DATA frames (docs/decisions/0009).
"""
