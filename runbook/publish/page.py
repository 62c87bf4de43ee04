"""The document as one self-contained page: no script, nothing fetched, its figures inside."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping

from nbconvert import HTMLExporter
from nbformat.v4 import new_markdown_cell, new_notebook

from runbook.publish.figure import FOLDER
from runbook.publish.lab import marked

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

_STYLE = """:root { color-scheme: light dark; --paper: #fff; --ink: #1a1a1a; --line: #d8d8d8; \
--shade: #f4f4f4; --good: #1b5e20; --bad: #b71c1c; --open: #a34700; --link: #0b57d0; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181c; --ink: #e6e6e6; --line: #3b3f46; \
--shade: #22252b; --good: #81c784; --bad: #ef9a9a; --open: #ffb74d; --link: #8ab4f8; } \
img { background: #fff; padding: .3rem; border-radius: .3rem; } }
body { margin: 0; background: var(--paper); color: var(--ink); \
font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 64rem; margin: 0 auto; padding: 1rem 1.5rem 4rem; }
h1 { font-size: 1.7rem; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); font-size: 1.3rem; }
a { color: var(--link); }
nav { margin: 1rem 0; font-size: .9rem; line-height: 1.9; }
nav a { margin-right: 1rem; white-space: nowrap; }
table { display: block; max-width: 100%; overflow-x: auto; border-collapse: collapse; \
font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border: 1px solid var(--line); vertical-align: top; }
th { background: var(--shade); }
td { overflow-wrap: anywhere; min-width: 3rem; max-width: 34rem; }
@media (max-width: 48rem) { td + td { min-width: 8rem; } \
td[style*="right"], td.good, td.bad, td.open { min-width: 0; } }
td:first-child { overflow-wrap: normal; }
td:first-child code, td[style*="right"], .good, .bad, .open, .time \
{ white-space: nowrap; }
.good { color: var(--good); }
.bad { color: var(--bad); font-weight: 600; }
.open { color: var(--open); font-weight: 600; }
pre { padding: .8rem; overflow-x: auto; background: var(--shade); border: 1px solid var(--line); \
font-size: .85rem; }
code { font-family: ui-monospace, monospace; }
:not(pre) > code { padding: 0 .2em; background: var(--shade); overflow-wrap: anywhere; }
img { max-width: 100%; height: auto; }
@media print { main { max-width: none; padding: 0; } nav { display: none; } \
pre { white-space: pre-wrap; } h2 { break-after: avoid; } img, tr { break-inside: avoid; } }
"""

_IMAGE = re.compile(rf'(<img\b[^>]*?\bsrc=")({FOLDER}/([\w.-]+))(")')
_SECTION = re.compile(r'<h2\b[^>]*\bid="([^"]+)"[^>]*>([^<]*)')
_TITLE = re.compile(r"<h1\b[^>]*>(.*?)</h1>", re.DOTALL)


def page(text: str, figures: Mapping[str, bytes]) -> str:
    """The page of a document: ``text`` is its Markdown, ``figures`` its PNG by file name."""
    exporter = HTMLExporter(template_name="basic", anchor_link_text="")
    body, _ = exporter.from_notebook_node(new_notebook(cells=[new_markdown_cell(text)]))
    body = marked(_IMAGE.sub(lambda match: _inside(match, figures), body))
    found = _TITLE.search(body)
    title = re.sub(r"<[^>]*>", "", found[1]).strip() if found else "record"
    body = _TITLE.sub(lambda match: f"{match[0]}\n{_contents(body)}", body, count=1)
    return _PAGE.format(title=html.escape(html.unescape(title)), style=_STYLE, body=body.strip())


def _contents(body: str) -> str:
    """Links to the sections."""
    links = "\n".join(f'<a href="#{name}">{title}</a>' for name, title in _SECTION.findall(body))
    return f"<nav>\n{links}\n</nav>"


def _inside(match: re.Match[str], figures: Mapping[str, bytes]) -> str:
    png = figures.get(match[3])
    if png is None:
        return match[0]
    return f"{match[1]}data:image/png;base64,{base64.b64encode(png).decode()}{match[4]}"
