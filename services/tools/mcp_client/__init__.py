"""Tools of MCP servers (https://modelcontextprotocol.io), through the official SDK.

servers.py keeps the servers of mcp.json in force, one task each (server.py), which lists a server's tools and gives
them to the catalogue (offered.py). A call (calling.py) goes over a session (session.py): the server's own, or one of
the user's whose credential the call carries. A server that is down harms only its own tools.
"""
