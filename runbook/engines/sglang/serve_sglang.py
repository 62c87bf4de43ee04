"""Starts SGLang's server with an API key that never stands in the arguments.

Run by file path under the serving interpreter (``PYTHON serve_sglang.py OPTIONS...``), so nothing
of ``runbook`` is imported here. The key is read from ``$CREDENTIALS_DIRECTORY/api-key`` and handed
over inside the process, which then runs ``sglang.launch_server`` as ``python -m`` does. Ends with 1
and one line on stderr where there is no key, else as SGLang ends.
"""

from __future__ import annotations

import logging
import os
import runpy
import sys
from pathlib import Path
from typing import Any

CREDENTIAL = "api-key"
HIDDEN = "<removed>"
SERVER = "sglang.launch_server"


def read_key() -> str:
    """The key out of the credential. Raises ``ValueError`` where there is none that can be used."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if not folder:
        raise ValueError(f"no $CREDENTIALS_DIRECTORY to read the credential {CREDENTIAL} from")
    try:
        key = Path(folder, CREDENTIAL).read_text("ascii").strip()
    except UnicodeDecodeError:
        raise ValueError(f"the credential {CREDENTIAL} is not ASCII text") from None
    except OSError as error:
        raise ValueError(f"the credential {CREDENTIAL} cannot be read: {error.strerror}") from None
    if not key or not key.isprintable():
        raise ValueError(f"the credential {CREDENTIAL} holds no single line of text")
    return key


def hide_in_log(key: str) -> None:
    """Keep the key out of this process's log: SGLang logs its arguments when it starts."""
    make = logging.getLogRecordFactory()

    def hide(value: Any) -> Any:
        if isinstance(value, (bool, int, float)) or key not in str(value):
            return value
        return str(value).replace(key, HIDDEN)

    def make_hidden(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        record.msg = hide(record.msg)
        if isinstance(record.args, tuple):
            record.args = tuple(hide(arg) for arg in record.args)
        elif record.args:
            record.args = {name: hide(arg) for name, arg in record.args.items()}
        return record

    logging.setLogRecordFactory(make_hidden)


def find_as_module_does() -> None:
    """Look modules up as ``python -m`` does: in the working directory, not beside this file, where
    a module named like SGLang's package lies."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    if sys.path and os.path.abspath(sys.path[0]) == here:  # noqa: PTH100
        sys.path[0] = os.getcwd()  # noqa: PTH109


def main() -> int:
    """Read the key, hand it over, serve."""
    try:
        key = read_key()
    except ValueError as error:
        print(f"serve_sglang: cannot serve: {error}", file=sys.stderr, flush=True)
        return 1
    hide_in_log(key)
    find_as_module_does()
    sys.argv = [SERVER, *sys.argv[1:], f"--api-key={key}"]
    runpy.run_module(SERVER, run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
