"""Kinds of values: names, addresses, ports, and the words for what each wants."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from typing import Annotated, Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, Field, StringConstraints

BASELINE = "baseline"


def _version_range(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError(f"{text!r} is no version range: write it like >=0.5.10,<0.5.13") from None
    return text


Level = Literal["fail", "warn", "off"]
#: Resource limits as systemd names them, but for those that have a parameter of their own.
# fmt: off
LimitName = Literal[
    "cpu", "fsize", "data", "stack", "core", "rss", "nproc", "as", "locks", "sigpending",
    "msgqueue", "nice", "rtprio", "rttime",
]
# fmt: on
Topology = Literal["", "single", "switch", "root", "node", "system", "all-system", "nvlink"]
Format = Literal["markdown", "html"]

#: What a pattern asks for, in words.
FORMS: dict[str, str] = {}


def form(words: str, pattern: str, **more: Any) -> StringConstraints:
    """Text of one form; ``words`` are what an error says was wanted."""
    FORMS[pattern] = words
    return StringConstraints(pattern=pattern, **more)


Name = Annotated[
    str, form("a name of a-z, 0-9, . _ and -, at most 63 long", r"^[a-z0-9][a-z0-9._-]{0,62}$")
]
#: Beside it lie files with longer names, which no file system takes beyond 255 bytes.
UnitName = Annotated[
    str,
    form(
        "the name of a unit, of letters, digits, . _ and -, at most 200 long, that ends with "
        ".service",
        r"^[A-Za-z0-9_][A-Za-z0-9_.-]*\.service$",
        max_length=200,
    ),
]
#: A unit of somebody else, also one made from a template.
OtherUnit = Annotated[
    str,
    form(
        "the name of a unit that ends with .service",
        r"^[A-Za-z0-9_][A-Za-z0-9:_.@\\-]*\.service$",
        max_length=255,
    ),
]
UserName = Annotated[str, form("the name of a user", r"^[a-z_][a-z0-9_-]{0,31}$")]
EnvName = Annotated[str, form("the name of a variable", r"^[A-Za-z_][A-Za-z0-9_]*$")]
Line = Annotated[str, form("one line of text, without NUL", r"^[^\x00\n\r]*$")]
Argument = Annotated[str, form("text without NUL", r"^[^\x00]*$")]
AbsolutePath = Annotated[str, form("an absolute path", r"^/[^\x00\n]*$")]
FilePath = Annotated[str, form("the path of a file", r"^[^\x00\n]*[^\x00\n/]$")]
Address = Annotated[
    str, form("an IP address or a host name", r"^(::)?[A-Za-z0-9][A-Za-z0-9.:%_-]*$|^::$")
]
NumberList = Annotated[
    str, form('numbers like "0-31,64"', r"^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$")
]
Umask = Annotated[str, form('three or four octal digits, like "0027"', r"^0?[0-7]{3}$")]
Sha256 = Annotated[str, form("64 hexadecimal digits", r"^[0-9a-f]{64}$")]
VersionRange = Annotated[str, AfterValidator(_version_range)]
Gib = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Port = Annotated[int, Field(ge=1, le=65535)]
Concurrency = Annotated[int, Field(ge=1, le=4096)]
Seconds = Annotated[float, Field(gt=0, le=86400)]
Share = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


def is_everywhere(address: str) -> bool:
    """Whether a server there answers whoever reaches the machine; ``0`` is 0.0.0.0 too."""
    with contextlib.suppress(OSError):
        return not any(socket.inet_aton(address))
    with contextlib.suppress(ValueError):
        found = ipaddress.IPv6Address(address)
        return not int(found) or (found.ipv4_mapped is not None and not int(found.ipv4_mapped))
    return False
