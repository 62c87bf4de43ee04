"""A unit file read back, so that two units can be compared by what they mean."""

from __future__ import annotations

from dataclasses import dataclass

from runbook.launch.quoting import split_words

_EXEC_PREFIXES = "@-:+!"


@dataclass(frozen=True)
class UnitFile:
    """A parsed unit; ``entries`` are (section, key, value as written), in order."""

    entries: tuple[tuple[str, str, str], ...]

    def values(self, section: str, key: str) -> list[str]:
        """All values of a key in force; an empty assignment resets what stood before it."""
        found: list[str] = []
        for in_section, name, value in self.entries:
            if (in_section, name) == (section, key):
                found = [*found, value] if value else []
        return found

    def value(self, section: str, key: str) -> str | None:
        """The last value of a key, ``None`` without one."""
        found = self.values(section, key)
        return found[-1] if found else None

    def assignments(self) -> list[str]:
        """The words of all ``Environment=`` lines, unquoted, with ``%%`` made one."""
        lines = self.values("Service", "Environment")
        return [word.replace("%%", "%") for line in lines for word in split_words(line)]

    def environment(self) -> dict[str, str]:
        """The variables that the unit sets; words without ``=`` are dropped, as systemd does."""
        return dict(word.split("=", 1) for word in self.assignments() if "=" in word)

    def command(self, key: str = "ExecStart", at: int = -1) -> tuple[str, ...]:
        """Program and arguments of an ``Exec*=`` key as the process gets them, empty for none.

        ``at``: which of several, by default the last. Variables are not expanded: ``$$`` becomes
        ``$``, anything else stays as written.
        """
        words = split_words((self.values("Service", key) or [""])[at])
        if not words:
            return ()
        program = words[0].lstrip(_EXEC_PREFIXES)
        prefix = words[0][: len(words[0]) - len(program)]
        arguments = [word.replace("%%", "%").replace("$$", "$") for word in words[1:]]
        if "@" in prefix:
            return tuple(arguments)
        return (program.replace("%%", "%"), *arguments)


def parse_unit(text: str) -> UnitFile:
    """Read a unit: comments dropped, continued lines joined. Lines that are none are dropped."""
    entries: list[tuple[str, str, str]] = []
    section = ""
    for line in _logical_lines(text):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif "=" in line:
            key, _, value = line.partition("=")
            entries.append((section, key.strip(), value.strip()))
    return UnitFile(tuple(entries))


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    continued = ""
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith(("#", ";")) or (not line and continued):
            continue
        if line.endswith("\\"):
            continued += line[:-1] + " "
        else:
            lines.append((continued + line).strip())
            continued = ""
    return [line for line in [*lines, continued.strip()] if line]
