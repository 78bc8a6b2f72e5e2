"""Offers tools of MCP servers (https://modelcontextprotocol.io), through the official SDK.

servers.py keeps the servers of mcp.json running, one task each (server.py), which gives a server's tools to the
catalogue (tool_mapping.py). A call (tool_calls.py) goes over a session (session.py): the server's own, or that of the
user whose credential the call carries. A server that is down harms only its own tools.
"""
