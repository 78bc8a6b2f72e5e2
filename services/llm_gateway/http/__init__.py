"""HTTP/1.1 to providers: one POST per call, whose answer the socket's callback pushes to its reader.

Our own client avoids a task wake-up and an object per piece of a body (docs/decisions/0014-http-client.md).
"""
