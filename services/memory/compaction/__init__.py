"""Compaction replaces a context's older messages with a summary.

The log keeps everything and gets two lines, at which the views begin.
"""
