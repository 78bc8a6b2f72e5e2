"""Chats in PostgreSQL, for several memory services at once. The views are the embedded store's; what differs is where
lines, index, leases and blobs are, and who else may write them.
"""
