"""Offers tools of MCP servers (https://modelcontextprotocol.io), through the official SDK.

servers.py keeps the servers of mcp.json running, one task each (server.py). A call (tool_calls.py) uses the server's
shared session, or that of the user with the call's credential (user_sessions.py). In 2026-07-28 a server responds to a
call with its questions, and the call is sent again (rounds.py); earlier versions ask while the call runs, which then
has its own session (live_calls.py).
"""
