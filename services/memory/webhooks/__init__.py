"""Webhooks: who is told of what, and the telling.

Memory delivers, not the orchestrator: it has what is to be delivered the moment that it is committed, so that nothing
need be asked for; secrets leave no process; and no delta passes through it that a handshake could hold up.
"""
