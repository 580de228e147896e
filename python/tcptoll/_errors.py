"""What can go wrong, as exceptions that name the file, the place and the remedy."""

from __future__ import annotations

import os


class TcptollError(Exception):
    """The program refused, failed, or was not found.

    The message is the program's own sentence. `exit_status` is its exit status, or None if it did not
    run (docs/guide/exit-status.md lists them).
    """

    def __init__(self, message: str, exit_status: int | None = None) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class BinaryNotFoundError(TcptollError):
    """The program `tcptoll` is not installed where Python looks for it."""


class RecordError(ValueError):
    """A file is not a record, or is damaged.

    `path` is the file, `line` the number of the line from 1 (None: the whole file), `reason` one
    sentence without its full stop, and `remedy` what to do.
    """

    def __init__(self, path: str, line: int | None, reason: str, remedy: str) -> None:
        self.path = path
        self.line = line
        self.reason = reason
        self.remedy = remedy
        place = "" if line is None else f", line {line}"
        super().__init__(f"{printable(path)}{place}: {reason}. {remedy}")


def printable(text: str, most: int = 200) -> str:
    """Text of a file, safe to print: control characters and lone surrogates are escaped."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:most])
    return shown + ("…" if len(text) > most else "")


def name_of(path: str | os.PathLike[str]) -> str:
    """A path as text that every table can hold, whatever bytes the file system has."""
    return os.fsencode(path).decode("utf-8", "replace")
