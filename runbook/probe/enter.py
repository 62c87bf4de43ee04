"""Becomes a launch: its limits, user, directory, environment, then its program.

Run on the target by any Python 3.8 or newer as the user who starts services; the launch is JSON
on stdin: ``argv``, ``env``, ``cwd``, ``user``, ``nofile``, ``memlock``, ``limits`` and ``process``
as in ``LaunchSpec`` (the last two may be missing), and ``stdin``, the text that the program gets.
Limits are set as the service manager sets them: what the kernel refuses is taken as far as it goes.
What cannot be done ends with 126 and one line.
"""

from __future__ import annotations

import json
import os
import pwd
import resource
import sys
from typing import Any

from runbook.probe.attributes import set_attributes


def set_limit(which: int, wanted: int | None) -> None:
    """Set a limit (``None``: no limit), or the nearest that this user and kernel allow."""
    value = resource.RLIM_INFINITY if wanted is None else wanted
    ceilings = [resource.getrlimit(which)[1]]
    if which == resource.RLIMIT_NOFILE:
        with open("/proc/sys/fs/nr_open") as file:
            ceilings.insert(0, int(file.read()))
    for ceiling in [None, *ceilings]:
        limit = value if ceiling is None else _lower(value, ceiling)
        try:
            resource.setrlimit(which, (limit, limit))
        except (ValueError, OSError):
            continue
        return


def _lower(one: int, other: int) -> int:
    """The lower of two limits, where infinity is the highest."""
    finite = [limit for limit in (one, other) if limit != resource.RLIM_INFINITY]
    return min(finite) if finite else resource.RLIM_INFINITY


def become(user: str) -> None:
    """Take on the rights of ``user``; empty is whoever runs this."""
    if not user:
        return
    entry = pwd.getpwnam(user)
    if entry.pw_uid == os.geteuid():
        return
    os.initgroups(user, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def give_stdin(text: str) -> None:
    """Make ``text`` what the program reads from stdin."""
    descriptor = os.memfd_create("stdin")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(text.encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.dup2(descriptor, 0)


def main(launch: dict[str, Any]) -> None:
    """Become ``launch``; returns only by an error."""
    give_stdin(launch["stdin"])
    set_limit(resource.RLIMIT_NOFILE, launch["nofile"])
    set_limit(resource.RLIMIT_MEMLOCK, launch["memlock"])
    for name, wanted in launch.get("limits", {}).items():
        set_limit(getattr(resource, "RLIMIT_" + name.upper()), wanted)
    set_attributes(launch.get("process", {}))
    become(launch["user"])
    os.chdir(launch["cwd"])
    os.execve(launch["argv"][0], launch["argv"], launch["env"])


if __name__ == "__main__":
    asked = json.loads(sys.stdin.buffer.read())
    try:
        main(asked)
    except KeyError:
        message = f"there is no user {asked['user']} here"
    except OSError as error:
        message = f"{error.filename or asked['user'] or asked['argv'][0]}: {error.strerror}"
    print(message, file=sys.stderr)
    sys.exit(126)
