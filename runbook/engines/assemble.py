"""The part of a launch that does not depend on the engine: environment, user, limits, key."""

from __future__ import annotations

import hashlib
import pwd
from collections.abc import Mapping, Sequence
from pathlib import Path

from runbook.errors import BadInput
from runbook.launch.spec import STATE, LaunchSpec
from runbook.params import Configuration, Params

#: Under this name a server finds its API key in ``$CREDENTIALS_DIRECTORY``.
KEY_CREDENTIAL = "api-key"

#: Variables that every launch has; the parameters may give them other values.
ALWAYS_SET = ("PATH", "HOME", "PYTHONUNBUFFERED")

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def assemble_spec(
    params: Params,
    configuration: Configuration,
    argv: Sequence[str],
    files: Mapping[str, str] | None = None,
) -> LaunchSpec:
    """The launch of ``argv`` for one configuration. Raises ``BadInput`` for an unknown user.

    The environment is whole: a fixed PATH, the user's HOME, unbuffered output, then what the
    server and the configuration set, the later before the earlier.
    """
    server, service = params.server, params.service
    return LaunchSpec(
        argv=tuple(argv),
        env={
            "PATH": _PATH,
            "HOME": _home_of(server.user or "root"),
            "PYTHONUNBUFFERED": "1",
            **server.env,
            **configuration.env,
        },
        cwd=server.cwd,
        user=server.user,
        nofile=service.nofile,
        memlock=service.memlock,
        credentials={KEY_CREDENTIAL: server.api_key.file} if server.api_key else {},
        files=files or {},
        limits={str(name): most for name, most in service.limits.items()},
        process=server.process.given(),
    )


def own_program(params: Params, program: Path) -> tuple[str, dict[str, str]]:
    """A program of the runbook as a launch names it, and what is to be written for it.

    A service must not depend on a clone, which may change or go: the program goes along, beside
    the unit and named by its content. A box sees the clone and is thrown away with it; processes
    end with the runbook.
    """
    goes_along = {"ssh": True, "box": False, "local": params.benchmark.launch == "unit"}
    if not goes_along[params.host.kind]:
        return str(program), {}
    text = program.read_text()
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = f"{STATE}/{params.service.unit}/launcher-{digest}-{program.name}"
    return path, {path: text}


def _home_of(user: str) -> str:
    try:
        return pwd.getpwnam(user).pw_dir
    except KeyError:
        raise BadInput(
            f"server.user: there is no user {user!r} here",
            "a user of this machine",
            f"create it: useradd --system {user}; or correct server.user",
        ) from None
