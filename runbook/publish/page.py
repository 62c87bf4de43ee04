"""The document as one self-contained page: no script, nothing fetched, its figures inside."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping

from nbconvert import HTMLExporter
from nbformat.v4 import new_markdown_cell, new_notebook

from runbook.publish.figure import FOLDER

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" \
content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""

_STYLE = """:root { color-scheme: light; }
body { margin: 0; background: #fff; color: #1a1a1a; font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 64rem; margin: 0 auto; padding: 1rem 1.5rem 4rem; }
h1 { font-size: 1.7rem; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc; font-size: 1.3rem; }
table { display: block; max-width: 100%; overflow-x: auto; border-collapse: collapse; \
font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border: 1px solid #ddd; vertical-align: top; }
th { background: #f2f2f2; }
td { overflow-wrap: anywhere; min-width: 3rem; }
td:nth-child(-n+2) { overflow-wrap: normal; }
pre { padding: .8rem; overflow-x: auto; background: #f6f6f6; border: 1px solid #e3e3e3; \
font-size: .85rem; }
code { font-family: ui-monospace, monospace; }
:not(pre) > code { padding: 0 .2em; background: #f2f2f2; overflow-wrap: anywhere; }
img { max-width: 100%; height: auto; }
@media print { main { max-width: none; padding: 0; } pre { white-space: pre-wrap; } }
"""

_IMAGE = re.compile(rf'(<img\b[^>]*?\bsrc=")({FOLDER}/([\w.-]+))(")')
_TITLE = re.compile(r"<h1\b[^>]*>(.*?)</h1>", re.DOTALL)


def page(text: str, figures: Mapping[str, bytes]) -> str:
    """The page of a document: ``text`` is its Markdown, ``figures`` its PNG by file name."""
    exporter = HTMLExporter(template_name="basic", anchor_link_text="")
    body, _ = exporter.from_notebook_node(new_notebook(cells=[new_markdown_cell(text)]))
    body = _IMAGE.sub(lambda match: _inside(match, figures), body)
    found = _TITLE.search(body)
    title = re.sub(r"<[^>]*>", "", found[1]).strip() if found else "record"
    return _PAGE.format(title=html.escape(html.unescape(title)), style=_STYLE, body=body.strip())


def _inside(match: re.Match[str], figures: Mapping[str, bytes]) -> str:
    png = figures.get(match[3])
    if png is None:
        return match[0]
    return f"{match[1]}data:image/png;base64,{base64.b64encode(png).decode()}{match[4]}"
