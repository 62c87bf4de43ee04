"""The verdict and tables as JupyterLab shows them, in its colours, for light and dark."""

from __future__ import annotations

import html
import re

import mistune

#: Numbers under one another, long texts wrapped, how a thing stands told by weight and colour.
_STYLE = """.runbook table { margin: .5em 0; border: 0; font-size: .93em; \
font-variant-numeric: tabular-nums; }
.runbook th, .runbook td { padding: .35em .8em; border: 0; \
border-bottom: 1px solid var(--jp-border-color2, #e0e0e0); vertical-align: top; \
max-width: 34em; overflow-wrap: anywhere; }
.runbook td:first-child { overflow-wrap: normal; min-width: 6em; }
.runbook td[style*="right"], .runbook td.time { white-space: nowrap; }
.runbook td code { overflow-wrap: anywhere; white-space: normal; }
.runbook td:first-child code { white-space: nowrap; }
.runbook pre { margin: .5em 0; padding: .6em .8em; overflow-x: auto; \
background: var(--jp-layout-color2, #f5f5f5); }
.runbook .verdict { padding: .6em .9em; border-left: 4px solid; font-weight: 600; \
background: var(--jp-layout-color2, #f5f5f5); }
.runbook th { border-bottom: 2px solid var(--jp-border-color1, #bdbdbd); white-space: nowrap; \
background: var(--jp-layout-color1, #fff); }
.runbook th[style*="right"] { white-space: normal; }
.runbook tbody tr:nth-child(odd) { background: var(--jp-layout-color1, #fff); }
.runbook tbody tr:nth-child(even) { background: var(--jp-layout-color2, #f5f5f5); }
.runbook .good { color: var(--jp-success-color0, #1b5e20); white-space: nowrap; }
.runbook .bad { color: var(--jp-error-color0, #b71c1c); font-weight: 600; white-space: nowrap; }
.runbook .open { color: var(--jp-warn-color0, #e65100); font-weight: 600; white-space: nowrap; }
.runbook .verdict { white-space: normal; }
"""
_STANDS = {
    **dict.fromkeys(("pass", "proved", "completed", "tested", "better"), "good"),
    **dict.fromkeys(("fail", "failed", "refuted", "interrupted", "worse"), "bad"),
    **dict.fromkeys(("warn", "unknown", "not tested", "undecided", "not provable here"), "open"),
}
_STATUS = re.compile(rf"<td(?P<rest>[^>]*>(?P<word>{'|'.join(_STANDS)})</td>)")
_TIME = re.compile(r"<td(?P<rest>[^>]*>\d{4}-\d\d-\d\dT[\d:]{8}Z</td>)")
_CELL = re.compile(r"<t[dh].*?</t[dh]>", re.DOTALL)


def as_html(text: str) -> str:
    """Markdown as HTML with the style of its tables; markup in it stays text."""
    # A backslash before an escaped pipe makes mistune see the end of the cell.
    pipe = next(chr(number) for number in range(0xE000, 0xF900) if chr(number) not in text)
    body = str(mistune.create_markdown(plugins=["table"])(text.replace("\\|", pipe)))
    body = _CELL.sub(lambda match: match[0].replace(pipe, "|"), body).replace(pipe, "\\|")
    return styled(marked(body))


def styled(body: str) -> str:
    """HTML of ours with its style."""
    return f'<style>\n{_STYLE}</style>\n<div class="runbook">\n{body}</div>'


def marked(body: str) -> str:
    """HTML with a class on every cell of a table that tells how a thing stands, or a time."""
    body = _TIME.sub(lambda match: f'<td class="time"{match["rest"]}', body)
    return _STATUS.sub(lambda match: f'<td class="{_STANDS[match["word"]]}"{match["rest"]}', body)


def show_verdict(line: str, ok: bool) -> None:
    """The one line of a verdict in its colour, as the output of the cell."""
    from IPython.display import display

    body = f'<div class="verdict {"good" if ok else "bad"}">{html.escape(line)}</div>'
    data = {"text/html": styled(body), "text/plain": line}
    display(data, raw=True)  # type: ignore[no-untyped-call]
