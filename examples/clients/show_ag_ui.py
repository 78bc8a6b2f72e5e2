"""Show the page in ag-ui/ on a simulated model: all agents of the examples, their calls, and gates that it answers.

    .venv/bin/python examples/clients/show_ag_ui.py [PORT]

The page is built at the first time, which needs Node; it is served at PORT (8090 when left out), until Ctrl-C.
"""

from __future__ import annotations

import functools
import signal
import sys
from contextlib import suppress
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

from suite_process import open_suite, prepare


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the page's files are not what is shown."""


def main(folder: str, port: int) -> None:
    serve = functools.partial(QuietHandler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", port), serve) as site:
        origin = f"http://127.0.0.1:{site.server_port}"
        with open_suite(HEADRACE_FACADE_CORS_ORIGINS=origin, HEADRACE_FACADE_PUBLISH="ag-ui") as url:
            sys.stdout.write(f"page: {origin}/?headrace={url}\n")
            sys.stdout.flush()
            with suppress(KeyboardInterrupt):
                site.serve_forever()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main(str(prepare("ag_ui") / "page"), int(sys.argv[1]) if len(sys.argv) > 1 else 8090)
