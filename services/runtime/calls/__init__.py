"""gRPC calls over any connection: the interfaces for callers and handlers, and a channel's choice of connections.

`http2` implements connections over sockets, `local` those inside the process.
"""
