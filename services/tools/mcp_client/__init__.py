"""Offers tools of MCP servers (https://modelcontextprotocol.io), through the official SDK.

servers.py keeps the servers of mcp.json running, one task each (server.py). A call (tool_calls.py) goes over the
server's own session, or that of the user whose credential it carries (user_sessions.py). In 2026-07-28 a server answers
a call with what it asks, and the call is sent again (rounds.py); before, it asks while the call runs, which then has a
session of its own (live_calls.py).
"""
