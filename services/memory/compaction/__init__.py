"""Compaction: what a context holds is replaced by a summary and its last messages (memory.md, Compaction).

The log keeps everything. Two lines are added, and from then on the views begin with them.
"""
