"""Makes one HTML file without scripts that loads nothing from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any

from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from services.tools.documents.blocks import make_parser

# The policy is for readers that open the file from somewhere that trusts it: whatever got in, nothing runs or loads.
PAGE = """<!doctype html>
<html>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ max-width: 46rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.6 system-ui, sans-serif; color: #222; }}
h1, h2, h3 {{ line-height: 1.25; }}
table {{ border-collapse: collapse; }}
td, th {{ border: 1px solid #ccc; padding: 0.3rem 0.6rem; text-align: left; }}
pre, code {{ font-family: ui-monospace, monospace; background: #f5f5f5; }}
pre {{ padding: 0.8rem; overflow-x: auto; }}
blockquote {{ margin-left: 0; padding-left: 1rem; border-left: 3px solid #ccc; color: #555; }}
</style>
</head>
<body>
{body}</body>
</html>
"""


def render_html(text: str, title: str) -> bytes:
    parser = make_parser()
    parser.add_render_rule("image", _render_image)
    return PAGE.format(title=escape(title), body=parser.render(text)).encode()


def _render_image(self: RendererHTML, tokens: list[Token], at: int, options: Any, env: Any) -> str:
    # A link does not tell the image's server who opens the report.
    del self, options, env
    image = tokens[at]
    address = str(image.attrs.get("src", ""))
    return f'<a href="{escape(address)}" rel="noreferrer">{escape(image.content or address)}</a>'
