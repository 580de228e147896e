"""Runs or resumes the study on the machine of a vantage point.

The record of a point lies on the point's own disk, under the key of what is measured. Whoever comes after a
killed worker continues that record. A finished record is returned as it is. So nothing is measured twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import select
import stat
import subprocess
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .. import _binary
from .._errors import TcptollError, printable
from .plan import MOST_RECORD_BYTES, MOST_STUDY_BYTES, PROTOCOL, PointError, Work, is_name, version_of

_TRIAL = b'{"line":"trial"'
#: How long the program of a worker that was killed may still hold the record.
_LOCKED_S = 10.0
_LOCKED = "another run is writing it"
_EMPTY = "it is empty"

#: Called with the number of trials in the record, and how many of them were there before.
Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Settings:
    """Of a worker: where records lie (None: the user's data folder), and which program runs (None: found)."""

    store: str | None = None
    binary: str | None = None
    poll_s: float = 0.5


class Trials:
    """Counts the complete trial lines of a record that grows, reading only what is new."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inode = self._at = self._count = 0

    def count(self) -> int:
        """How many there are now."""
        try:
            file = open(self.path, "rb")
        except FileNotFoundError:
            return 0
        with file:
            found = os.fstat(file.fileno())
            if found.st_ino != self._inode or found.st_size < self._at:
                self._inode, self._at, self._count = found.st_ino, 0, 0
            file.seek(self._at)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._at += len(line)
                self._count += line.startswith(_TRIAL)
        return self._count


def run_or_resume(work: Work, settings: Settings, report: Report, stopped: Callable[[], bool]) -> dict[str, Any]:
    """The result as plain data: the record, how many trials this call measured, and the program's exit status.

    `stopped` is asked a few times a second; once it says so, the program is asked to end.
    """
    ends = time.monotonic() + work.most_s
    try:
        binary = settings.binary or _binary.find()
        _check(work, binary)
        folder = _folder(settings.store)
        return _measured(work, settings, binary, folder, report, lambda: stopped() or time.monotonic() > ends)
    except TcptollError as error:
        return _nothing(2, str(error))
    except OSError as error:
        return _nothing(2, f"{error.strerror}: {error.filename}" if error.filename else str(error))


def version(binary: str) -> str:
    """Version of a program. Raises PointError."""
    try:
        done = subprocess.run([binary, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PointError(f"{printable(binary)} --version failed: {printable(str(error))}") from error
    return version_of(done.stdout[:200].decode("utf-8", "replace"))


def probe(settings: Settings) -> str:
    """Version of the program of a worker. Raises TcptollError."""
    return version(settings.binary or _binary.find())


def _check(work: Work, binary: str) -> None:
    if work.protocol != PROTOCOL:
        raise PointError(f"its Python package tcptoll speaks protocol {PROTOCOL}, but {work.protocol} was asked")
    if not re.fullmatch("[0-9a-f]{64}", work.key) or not is_name(work.point):
        raise PointError("the key or the name of the point is not valid")
    if len(work.study.encode()) > MOST_STUDY_BYTES:
        raise PointError(f"the study has more than {MOST_STUDY_BYTES >> 20} MiB")
    found = version(binary)
    if found != work.version:
        raise PointError(f"its tcptoll is version {found}, but {work.version} was asked")


def _folder(store: str | None) -> Path:
    """The folder of the records, which nobody else may write."""
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    folder = Path(store or os.path.join(data, "tcptoll", "fleet")).absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise PointError(f"{printable(str(folder))} must belong to this user and be writable by nobody else")
    return folder


def _measured(
    work: Work, settings: Settings, binary: str, folder: Path, report: Report, stopped: Callable[[], bool]
) -> dict[str, Any]:
    path = folder / f"{work.key}.jsonl"
    trials = Trials(path)
    found = trials.count()
    gives_up = time.monotonic() + _LOCKED_S
    anew = False
    while True:
        resumes = not anew and path.exists() and path.stat().st_size > 0
        command = [binary, "study", "run", *_arguments(work, folder, path, resumes), "--stop-on-eof", "-q"]
        status, stderr = _child(command, settings.poll_s, work.stop_s, lambda: report(trials.count(), found), stopped)
        if status == 2 and _LOCKED in stderr and time.monotonic() < gives_up and not stopped():
            time.sleep(0.5)
            found = trials.count()
        elif status == 2 and _EMPTY in stderr and resumes and not anew:
            anew = True
        else:
            break
    count = trials.count()
    report(count, found)
    result = _nothing(status, "" if status in (0, 1) else why(status, stderr, stopped()))
    result.update(measured=max(0, count - found), found=min(found, count))
    size = path.stat().st_size if path.exists() else 0
    if size > MOST_RECORD_BYTES:
        result.update(status=3, error=f"its record has {size / 1e6:.0f} MB; the limit is {MOST_RECORD_BYTES >> 20} MiB")
    elif size > 0:
        record = path.read_bytes()
        digest = hashlib.sha256(record).hexdigest()
        result.update(record=zlib.compress(record), bytes=len(record), sha256=digest)
    return result


def _arguments(work: Work, folder: Path, path: Path, resumes: bool) -> list[str]:
    if resumes:
        return [f"--resume={path}"]
    study = folder / f"{work.key}.toml"
    draft = folder / f"{work.key}.{os.getpid()}.new"
    draft.write_text(work.study, encoding="utf-8")
    draft.replace(study)
    split = [
        f"--set=share={work.share}", f"--start-at={work.start_at}", f"--every={work.every}", f"--clock-ahead={work.clock_ahead}",
    ] if work.share else []  # fmt: skip
    return [str(study), f"--vantage={work.point}", f"--seed={work.seed}", f"--out={path}", *split]


def _child(
    command: list[str], poll_s: float, stop_s: float, report: Callable[[], None], stopped: Callable[[], bool]
) -> tuple[int, str]:
    """Runs the program. It ends when the pipe to its standard input closes, so also when this process is killed."""
    with tempfile.TemporaryFile() as errors:
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
            )
        except OSError as error:
            raise PointError(f"{printable(command[0])} cannot be run: {error.strerror}") from error
        assert child.stdin is not None
        try:
            reported = time.monotonic()
            while not _ended(child, 0.25 if poll_s >= 0.25 else poll_s):
                if stopped():
                    break
                if time.monotonic() - reported >= poll_s:
                    reported = time.monotonic()
                    report()
        finally:
            with contextlib.suppress(OSError):
                child.stdin.close()
            if not _ended(child, stop_s):
                child.kill()
            status = child.wait()
        return (128 - status if status < 0 else status), _tail(errors)


def _ended(child: subprocess.Popen[bytes], timeout: float) -> bool:
    """Waits for the program without waking up meanwhile: the machine that measures should be idle otherwise."""
    if child.poll() is not None:
        return True
    try:
        watched = os.pidfd_open(child.pid)
    except OSError:  # An old kernel.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout)
        return child.poll() is not None
    try:
        ready = select.poll()
        ready.register(watched, select.POLLIN)
        ready.poll(timeout * 1000)
    finally:
        os.close(watched)
    return child.poll() is not None


def _tail(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - (64 << 10)))
    return file.read().decode("utf-8", "replace")


def why(status: int, stderr: str, stopped: bool = False) -> str:
    """Why a run has no result, in one sentence."""
    if stopped:
        return "the run was stopped before its end"
    if status > 128 and "error: " not in stderr:
        return f"its tcptoll was ended by signal {status - 128}"
    return _binary.sentence(stderr, status)


def _nothing(status: int, error: str) -> dict[str, Any]:
    """A result without a record."""
    return {
        "protocol": PROTOCOL, "status": status, "error": error, "record": None, "bytes": 0, "sha256": "",
        "measured": 0, "found": 0,
    }  # fmt: skip
