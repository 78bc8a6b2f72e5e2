"""Metrics, spans and the interaction log of the gateway, with credentials masked."""
