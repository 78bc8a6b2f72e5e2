"""Who calls: a service of the suite, by its certificate or the suite's token, or a client, by its credential.

authenticator.py admits calls; identity.py is what it finds out, and what goes on to the calls made meanwhile.
"""
