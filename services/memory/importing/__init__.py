"""Logs that other programs wrote, read with tolerance: V3, V3.1, and Blade-style entries.

Each form has a file that reads it; all write one new log, in order, through Writing.
"""
