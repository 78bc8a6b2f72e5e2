"""Compaction replaces a context's older messages by a summary.

The log keeps everything, and gets two lines from which the views begin.
"""
