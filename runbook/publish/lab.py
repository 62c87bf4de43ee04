"""Tables as JupyterLab shows them: a style of ours, in its colours, for light and dark."""

from __future__ import annotations

import re

import mistune

#: Numbers under one another, long texts wrapped, how a thing stands told by weight and colour.
_STYLE = """.runbook table { margin: .5em 0; border: 0; font-size: .93em; \
font-variant-numeric: tabular-nums; }
.runbook th, .runbook td { padding: .35em .8em; border: 0; \
border-bottom: 1px solid var(--jp-border-color2, #e0e0e0); vertical-align: top; \
max-width: 34em; overflow-wrap: anywhere; }
.runbook td:nth-child(-n+2) { overflow-wrap: normal; }
.runbook td[style*="right"] { white-space: nowrap; }
.runbook th { border-bottom: 2px solid var(--jp-border-color1, #bdbdbd); white-space: nowrap; \
background: var(--jp-layout-color1, #fff); }
.runbook tbody tr:nth-child(odd) { background: var(--jp-layout-color1, #fff); }
.runbook tbody tr:nth-child(even) { background: var(--jp-layout-color2, #f5f5f5); }
.runbook .good { color: var(--jp-success-color0, #1b5e20); }
.runbook .bad { color: var(--jp-error-color0, #b71c1c); font-weight: 600; }
.runbook .open { color: var(--jp-warn-color0, #e65100); font-weight: 600; }
"""
_STANDS = {
    **dict.fromkeys(("pass", "proved", "completed", "tested", "better"), "good"),
    **dict.fromkeys(("fail", "failed", "refuted", "interrupted", "worse"), "bad"),
    **dict.fromkeys(("warn", "unknown", "not tested", "undecided", "not provable here"), "open"),
}
_STATUS = re.compile(rf"<td(?P<rest>[^>]*>(?P<word>{'|'.join(_STANDS)})</td>)")
_CELL = re.compile(r"<t[dh].*?</t[dh]>", re.DOTALL)


def as_html(text: str) -> str:
    """Markdown as HTML with the style of its tables; markup in it stays text."""
    # A backslash before an escaped pipe makes mistune see the end of the cell.
    pipe = next(chr(number) for number in range(0xE000, 0xF900) if chr(number) not in text)
    body = str(mistune.create_markdown(plugins=["table"])(text.replace("\\|", pipe)))
    body = _CELL.sub(lambda match: match[0].replace(pipe, "|"), body).replace(pipe, "\\|")
    return f'<style>\n{_STYLE}</style>\n<div class="runbook">\n{_STATUS.sub(_marked, body)}</div>'


def _marked(match: re.Match[str]) -> str:
    return f'<td class="{_STANDS[match["word"]]}"{match["rest"]}'
