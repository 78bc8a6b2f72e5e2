"""The modes: each produces a run's answer in its own way."""
