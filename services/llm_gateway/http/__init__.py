"""HTTP/1.1 to providers, one POST per call.

Our own client avoids a task wake-up per piece of a body (docs/decisions/0014-http-client.md).
"""
