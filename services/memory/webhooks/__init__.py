"""Webhooks: subscriptions, and deliveries.

Memory delivers, not the orchestrator: it has the events when they are committed, so that nothing must be requested;
secrets leave no process; and it passes no deltas that a handshake could delay.
"""
