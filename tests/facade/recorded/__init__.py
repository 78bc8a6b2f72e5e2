"""Recorded runs on all adapters: what every reader of a run gives out, byte for byte."""
