"""Offers tools of MCP servers (https://modelcontextprotocol.io), through the official SDK.

servers.py keeps the servers of mcp.json running, one task each (server.py). A call (tool_calls.py) goes over the
server's own session, or that of the user whose credential it carries (user_sessions.py).
"""
