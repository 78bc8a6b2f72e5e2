"""Invariants of every simulated world once its faults are over."""
