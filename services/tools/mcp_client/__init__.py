"""Tools of MCP servers (https://modelcontextprotocol.io), through the official SDK.

servers.py keeps the servers of mcp.json running, one task each (server.py), which lists a server's tools and gives
them to the catalogue (tool_mapping.py). A call (tool_calls.py) goes over a session (session.py): the server's own, or
the one of the user whose credential the call carries. A server that is down harms only its own tools.
"""
