"""Recorded runs on all adapters: each adapter's output, byte for byte."""
