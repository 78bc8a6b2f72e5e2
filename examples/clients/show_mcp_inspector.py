"""Show the agents of the examples as tools in the MCP Inspector, on a simulated model.

    .venv/bin/python examples/clients/show_mcp_inspector.py [--method tools/list …]

The Inspector is installed at the first time, which needs Node. Its page is served until Ctrl-C, at the address that is
printed; with arguments of its command line it does that one call and ends.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from urllib.parse import urlencode

from suite_process import open_suite, prepare

TOKEN = re.compile(r"(http://\S+)/\?MCP_PROXY_AUTH_TOKEN=(\w+)")
"""In what the Inspector says: where its page is, and the token without which it takes no requests."""

NO_BROWSER = {"MCP_AUTO_OPEN_ENABLED": "false"}
"""The page is opened by the address that names our server."""


def main(inspector: str, call: list[str]) -> int:
    with open_suite(HEADRACE_FACADE_PUBLISH="mcp") as url:
        server = f"{url}/mcp"
        if call:
            return subprocess.run([inspector, "--cli", server, "--transport", "http", *call], check=False).returncode
        env = os.environ | NO_BROWSER
        with subprocess.Popen([inspector], stdout=subprocess.PIPE, text=True, env=env) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    if match := TOKEN.search(line):
                        tell_page(match[1], match[2], server)
                return process.wait()
            except KeyboardInterrupt:
                process.terminate()
                return 0


def tell_page(page: str, token: str, server: str) -> None:
    query = {"transport": "streamable-http", "serverUrl": server, "MCP_PROXY_AUTH_TOKEN": token}
    sys.stdout.write(f"page: {page}/?{urlencode(query)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(str(prepare("node") / "node_modules" / ".bin" / "mcp-inspector"), sys.argv[1:]))
