"""Reads the file of a record: its header and trials, and where it is damaged.

The rules are those of docs/record-format.md, and the limits those of the program: what `tcptoll
report` refuses is refused here, with the number of the line.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn

from . import _trial
from ._errors import RecordError, name_of, printable

#: The newest format that is understood.
RECORD_VERSION = 2
#: The largest file that is read.
FILE_MAX = 1 << 30
#: The longest line that is parsed: JSON may take thirty times its length in memory. Only a summary of very many
#: rounds and arms may be longer; nothing here needs it, so it is passed over.
LINE_MAX = 8 << 20

_HEADER = b'{"line":"header"'
_MERGED = b'{"line":"merged"'
_SUMMARY = b'{"line":"summary"'
_RESTORE = "Restore the file from a copy, or remove this line to read the others"


@dataclass(slots=True)
class Run:
    """A record in memory."""

    path: str
    header: dict[str, Any]
    trials: list[_trial.Trial]
    #: Whether the last line was cut: the run was killed while writing it. It is left out.
    torn: bool

    @property
    def vantage(self) -> str | None:
        """Name of the machine, if the run was given one."""
        name = self.header.get("vantage")
        return name if isinstance(name, str) else None


def read(path: str | os.PathLike[str]) -> Run:
    """Reads a record.

    Raises RecordError if it is damaged or is not a record, and OSError if it cannot be read.
    """
    name = name_of(path)
    status = os.stat(path)
    # A pipe or a device has no end, or waits for one.
    if not stat.S_ISREG(status.st_mode):
        raise RecordError(name, None, "it is not a regular file", "Name the file of a record")
    if status.st_size > FILE_MAX:
        raise RecordError(name, None, f"it is larger than {FILE_MAX >> 20} MiB", "No run writes such a record")
    with open(path, "rb") as file:
        return _Reader(name, file).run()


class _Reader:
    def __init__(self, name: str, file: BinaryIO) -> None:
        self._name = name
        self._file = file
        self._number = 0
        # NaN and Infinity are not JSON, though Python's reader takes them.
        self._json = json.JSONDecoder(parse_constant=_no_constant)

    def run(self) -> Run:
        self._check_beginning()
        header: dict[str, Any] = {}
        trials: list[_trial.Trial] = []
        while line := self._file.readline(LINE_MAX + 1):
            self._number += 1
            if len(line) > LINE_MAX:
                if not line.startswith(_SUMMARY):
                    self._refuse(f"it is longer than {LINE_MAX >> 20} MiB")
                while line and not line.endswith(b"\n"):
                    line = self._file.readline(LINE_MAX)
                if not line:
                    return Run(self._name, header, trials, torn=True)
                continue
            if not line.endswith(b"\n"):
                if self._number == 1:
                    self._empty()
                return Run(self._name, header, trials, torn=True)
            parsed = self._parse(line)
            if self._number == 1:
                header = self._header(parsed)
            elif parsed.get("line") == "trial":
                try:
                    trials.append(_trial.read(parsed))
                except _trial.Wrong as wrong:
                    self._refuse(printable(str(wrong)))
        return Run(self._name, header, trials, torn=False)

    def _check_beginning(self) -> None:
        begins = self._file.read(64)
        self._file.seek(0)
        if not begins or (len(begins) < len(_HEADER) and _HEADER.startswith(begins)):
            self._empty()
        if not begins.startswith(_HEADER):
            if b'"watch-header"' in begins:
                reason = "it is the record of a watch, which has no trials"
                raise RecordError(self._name, 1, reason, "`tcptoll report FILE` shows it")
            if begins.startswith(_MERGED):
                reason = "it is a merged record of several vantage points"
                raise RecordError(self._name, 1, reason, "`tcptoll report FILE` shows it; read the records of the points")
            reason = "it does not begin with the header of a record"
            raise RecordError(self._name, 1, reason, "Name a file that tcptoll wrote with --out")

    def _parse(self, line: bytes) -> dict[str, Any]:
        try:
            parsed = self._json.decode(line.decode())
            if b"\\u" in line:  # Half of a surrogate pair is no character, and no table takes it.
                json.dumps(parsed, ensure_ascii=False).encode()
        except UnicodeError:
            self._refuse("it is not UTF-8")
        except RecursionError:
            self._refuse("it is nested more deeply than any record")
        except ValueError as error:
            self._refuse(f"it is not JSON ({printable(str(error))})")
        if not isinstance(parsed, dict) or not isinstance(parsed.get("line"), str):
            self._refuse('it is not an object with "line"')
        return parsed

    def _header(self, header: dict[str, Any]) -> dict[str, Any]:
        version = header.get("record_version")
        if type(version) is not int or version < 1:
            self._refuse("`record_version` is not a number from 1")
        if version > RECORD_VERSION:
            reason = f"its format is version {printable(str(version), 20)}, but this tcptoll reads at most {RECORD_VERSION}"
            raise RecordError(self._name, None, reason, "Use a newer tcptoll: `pip install --upgrade tcptoll`")
        if not isinstance(header.get("experiment"), str):
            self._refuse("`experiment` is not text")
        return header

    def _refuse(self, reason: str) -> NoReturn:
        raise RecordError(self._name, self._number, reason, _RESTORE)

    def _empty(self) -> NoReturn:
        reason = "it is empty, because the run ended before its first trial"
        raise RecordError(self._name, None, reason, "Start a new run")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")
