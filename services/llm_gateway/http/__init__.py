"""HTTP/1.1 to providers: one POST per call, whose answer is pushed to its reader from the socket's callback.

Our own client because no task wakes up and no object is made for a piece of a body
(docs/decisions/0014-http-client.md). It does not do redirects, cookies, compression, proxies, upgrades, HTTP/2, or
methods other than POST.
"""
