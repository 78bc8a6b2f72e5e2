"""Recorded runs on all faces: what every reader of a run gives out, byte for byte."""
