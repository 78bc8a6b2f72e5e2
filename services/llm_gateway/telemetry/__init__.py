"""Metrics, spans and interaction log, with credentials masked."""
