"""``docs/command-line.md`` from the tree of commands."""

from __future__ import annotations

from collections.abc import Iterator

import click

from runbook.cli import verbs
from runbook.publish.tables import fence

_HEAD = """# Command line
*Made by `make reference` from `runbook/cli.py`; a test holds it current.*

In a clone the program is `.venv/bin/runbook`. `PARAMS` is a parameters file
([reference](parameters.md)), `RUN` a run folder ([what is in it](run-folder.md)). Errors and notes
go to stderr, results to stdout. `NO_COLOR` takes colours away; off a terminal there are none.
"""

_COMPLETION = """## Completion
The shell's completion is click's own. With `.venv/bin` on the `PATH`, one of these lines in the
file that bash, zsh or fish reads at its start:

```sh
eval "$(_RUNBOOK_COMPLETE=bash_source runbook)"
eval "$(_RUNBOOK_COMPLETE=zsh_source runbook)"
_RUNBOOK_COMPLETE=fish_source runbook | source
```
"""


def command_line() -> str:
    """The page, whole."""
    parts = [_HEAD, *_sections(verbs, "runbook", None), _COMPLETION]
    return "\n".join(parts)


def _sections(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    settings = {**verbs.context_settings, "terminal_width": 88, "max_content_width": 88}
    context = click.Context(command, parent, name, **settings)
    path = context.command_path
    yield f"## {path}\n{fence(command.get_help(context), 'text')}\n"
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from _sections(found, below, context)
