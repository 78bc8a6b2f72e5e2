"""Compaction: the messages of a context are replaced by a summary and the last of them.

The log keeps everything. Two lines are added, and from then on the views begin with them.
"""
