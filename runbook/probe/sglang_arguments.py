"""What SGLang's own parser makes of command lines, as one line of JSON.

Run as ``serving.py`` is, with OPTIONS as JSON: ``launches`` (name -> its whole argv). Each
is parsed and resolved in a child of its own, after one import. The line is ``{"probe":
"sglang_arguments", "facts": {"arguments": {...}}, "reasons": {...}}``: for each name ``resolved``
(option -> value, those that are no secrets) and ``said`` (warnings), or ``refused``, or ``unknown``
(why this machine cannot tell). Nothing is started. Standard library alone, one file.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

from runbook.redaction import names_secret

LIMIT_BYTES = 1 << 20
SERVERS = ("sglang.launch_server", "serve_sglang.py")
#: A refusal by the parser or a rule of its; any other error may be the machine's.
REFUSALS = (ValueError, AssertionError, NotImplementedError)


def resolve(arguments: list[str]) -> dict[str, Any]:
    """Every option with the value that the server would run with."""
    from sglang.srt.server_args import prepare_server_args  # type: ignore[import-not-found]

    parsed = prepare_server_args(arguments)
    if hasattr(parsed, "resolve_once"):  # from 0.5.20 on
        parsed.resolve_once()
        values = parsed.resolved_dict()
    else:
        values = vars(parsed)
    return {name: value for name, value in values.items() if _is_told(name, value)}


def arguments_of(argv: list[str]) -> list[str]:
    """What the server itself is given."""
    for place, word in enumerate(argv):
        if word.endswith(SERVERS):
            return argv[place + 1 :]
    raise ValueError("no SGLang server is started by " + " ".join(argv[:3]))


def _is_told(name: str, value: Any) -> bool:
    if name.startswith("_") or names_secret(name):
        return False
    return value is None or (isinstance(value, (str, int, float)) and value == value)


def answer_of(argv: list[str]) -> dict[str, Any]:
    """What becomes of one command line."""
    try:
        return {"resolved": resolve(arguments_of(argv))}
    except SystemExit:
        return {"refused": ""}  # argparse has said why
    except REFUSALS as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    except BaseException as error:
        traceback.print_exc()
        return {"unknown": f"{type(error).__name__}: {error}"}


def in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """``work`` done in a fork, with what it printed under ``said``."""
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as answered:
        pid = os.fork()
        if pid == 0:
            for descriptor in (1, 2):
                os.dup2(printed.fileno(), descriptor)
            answered.write(json.dumps(work()).encode())
            answered.flush()
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        answered.seek(0)
        printed.seek(0)
        text = printed.read(LIMIT_BYTES).decode(errors="replace")
        try:
            answer: dict[str, Any] = json.loads(answered.read())
        except ValueError:
            answer = {"unknown": f"the parser ended with status {status}"}
    answer["said"] = [line for line in text.splitlines() if line.strip()][-40:]
    if answer.get("refused") == "":
        errors = [line for line in answer["said"] if "error:" in line]
        answer["refused"] = errors[-1] if errors else "the parser ended without a word"
    return answer


def main(options: dict[str, Any]) -> dict[str, Any]:
    """All command lines; a reason where SGLang cannot be imported."""
    reasons: dict[str, str] = {}
    facts: dict[str, Any] = {"arguments": None}
    try:
        importlib.import_module("sglang.srt.server_args")
        facts["arguments"] = {
            name: in_child(lambda argv=argv: answer_of(argv))  # type: ignore[misc]
            for name, argv in options["launches"].items()
        }
    except Exception as error:
        reasons["arguments"] = f"SGLang's parser cannot be had: {type(error).__name__}: {error}"
    return {"probe": "sglang_arguments", "facts": facts, "reasons": reasons}


if __name__ == "__main__":
    print("\n" + json.dumps(main(json.loads(sys.argv[1]))))
