"""The MCP client that the conformance program starts for each scenario.

The test's process does the work, since the service is imported there already. Arguments: the test's socket, and the URL
of the scenario's server. Standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import sys

given = {
    "scenario": os.environ["MCP_CONFORMANCE_SCENARIO"],
    "context": json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
    "url": sys.argv[2],
}
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    connection.sendall(json.dumps(given).encode() + b"\n")
    answer = json.loads(connection.makefile().readline())
sys.stdout.write(answer["told"])
sys.exit(answer["code"])
