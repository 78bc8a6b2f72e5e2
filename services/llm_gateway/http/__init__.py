"""HTTP/1.1 to providers: one POST a call, whose answer is pushed to its reader as the socket gives it.

Our own, because the way from the socket to the delta is what this service is about: no task wakes up and no object is
made for a piece of a body. Does not do: redirects, cookies, compression, proxies, upgrades, HTTP/2, methods but POST.
"""
