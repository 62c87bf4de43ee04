"""Text inside a systemd unit, byte for byte: what is written here reaches the process unchanged.

systemd reads a line in three passes: words are split, unquoted and C-unescaped; then ``%``
specifiers expand; then, in ``Exec*=`` only, ``$`` variables. Each writer undoes exactly these.
"""

from __future__ import annotations

import re

from runbook.errors import BadInput

_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def quote_argument(text: str) -> str:
    """One argument of ``Exec*=``. Raises ``BadInput`` for what no argument can carry."""
    doubled = _carried(text, "argument").replace("%", "%%").replace("$", "$$")
    return doubled if _PLAIN.fullmatch(doubled) else _quoted(doubled)


def quote_assignment(name: str, value: str) -> str:
    """``NAME=value`` for ``Environment=``, where ``$`` is literal. Raises ``BadInput``."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise BadInput(
            f"{name!r} is no name of a variable", "letters, digits and _", "correct it in env"
        )
    return _quoted(f"{name}={_carried(value, name)}".replace("%", "%%"))


def plain_path(path: str, what: str) -> str:
    """A path for keys that know no quotes (``WorkingDirectory=``). Raises ``BadInput``."""
    if not path.startswith("/") or path != path.rstrip() or path.endswith("\\"):
        raise BadInput(
            f"{what} {path!r} cannot stand in a unit",
            "an absolute path without a blank or backslash at its end",
            "correct it in the parameters, or set a symbolic link to it",
        )
    if not _carried(path, what).isprintable():
        raise BadInput(
            f"{what} {path!r} holds a control character",
            "a printable path",
            "correct it in the parameters, or set a symbolic link to it",
        )
    return path.replace("%", "%%")


def exec_line(argv: tuple[str, ...]) -> str:
    """The value of ``Exec*=`` for ``argv``: options each on a line of their own.

    ``@`` gives ``argv[0]`` by itself where systemd would otherwise alter it: it tidies the path
    of the program and never expands ``$`` in it.
    """
    if not argv:
        raise BadInput(
            "a command without arguments", "the program first", "correct server.interpreter"
        )
    program = argv[0]
    plain_path(program, "the program")
    if re.search(r"[\"'\\\x7f]", program) or program.endswith("/"):
        raise BadInput(
            f"the program {program!r} has a quote or a backslash in its path, or no name",
            "a path that systemd executes",
            "move the interpreter, or set a symbolic link to it (params: server.interpreter)",
        )
    undollared = quote_argument(program).replace("$$", "$")
    if "$" in program or re.search(r"//|/\./", program):
        head = f"@{undollared} {quote_argument(program)}"
    else:
        head = undollared
    lines = [head]
    for argument in argv[1:]:
        if argument.startswith("-"):
            lines.append(quote_argument(argument))
        else:
            lines[-1] += " " + quote_argument(argument)
    return " \\\n    ".join(lines)


def split_words(value: str) -> list[str]:
    """The words of a value as systemd splits, unquotes and unescapes them; ``%`` and ``$`` stay.

    Raises ``BadInput`` where a quote is left open.
    """
    words: list[str] = []
    word: str | None = None
    quote = ""
    at = 0
    while at < len(value):
        char = value[at]
        if char == "\\" and at + 1 < len(value):
            text, at = _unescape(value, at)
            word = (word or "") + text
            continue
        if quote:
            word, quote = (word, "") if char == quote else ((word or "") + char, quote)
        elif char in "\"'":
            word, quote = word or "", char
        elif char.isspace():
            if word is not None:
                words.append(word)
            word = None
        else:
            word = (word or "") + char
        at += 1
    if quote:
        raise BadInput(
            f"an open quote in {value[:80]!r}", "closed quotes", "correct this line of the unit"
        )
    return [*words, word] if word is not None else words


_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|(.))", re.DOTALL
)
_NAMED = dict(zip("abfnrtvs", "\a\b\f\n\r\t\v ", strict=True))


def _unescape(value: str, at: int) -> tuple[str, int]:
    match = _ESCAPE.match(value, at)
    assert match is not None
    *numbers, octal, single = match.groups()
    number = next((int(digits, 16) for digits in numbers if digits), None)
    if octal is not None:
        number = int(octal, 8)
    text = chr(number) if number is not None else _NAMED.get(single, single)
    return text, match.end()


def _quoted(text: str) -> str:
    mark = "'" if '"' in text and "'" not in text else '"'
    return mark + "".join(_escaped(char, mark) for char in text) + mark


def _escaped(char: str, mark: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    if char == mark:
        return "\\" + char
    if char == " " or char.isprintable():
        return char
    number = ord(char)
    if number < 0x80:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _carried(text: str, what: str) -> str:
    """``text`` if systemd can carry it: no NUL, no half of a surrogate pair, no noncharacter."""
    for char in text:
        number = ord(char)
        noncharacter = 0xFDD0 <= number <= 0xFDEF or number & 0xFFFE == 0xFFFE
        if number == 0 or 0xD800 <= number <= 0xDFFF or noncharacter:
            raise BadInput(
                f"{what} holds U+{number:04X}, which no unit can carry",
                "text without it",
                "take it out of the parameters",
            )
    return text
