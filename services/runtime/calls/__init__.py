"""gRPC calls over any connection: what callers and handlers see of them, and a channel's choice among connections.

`http2` has connections over sockets, `local` those inside the process.
"""
