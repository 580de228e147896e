"""Runs the program and gives back the record."""

from __future__ import annotations

import codecs
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path

from . import _binary
from ._errors import TcptollError
from ._options import Value, command_line
from ._record import Record

#: The end of what the program writes on stderr, in which its error is looked for.
_TAIL = 64 << 10
#: Exit statuses of a run that measured and stored: limits held, or did not.
_MEASURED = (0, 1)


def run(
    experiment: str,
    *servers: str,
    out: str | os.PathLike[str] | None = None,
    quiet: bool = False,
    **options: Value,
) -> Record:
    """Measures: `run("connect", link=["same-room", "metro"], count=1000)` is `tcptoll connect --link …`.

    Options have the names of the command line with `_` for `-`, and are checked against those that the
    program has. A list is one arm per level. `True` is a flag, or `on`. `servers` are servers of yours, like a URL.

    `out` is a folder for the record, or a file that ends in `.jsonl`. Without it the record is in a temporary
    folder, which goes with the returned object. Progress goes to stderr, unless `quiet`.

    Raises TcptollError with the program's own sentence and exit status if nothing was measured. If a limit of
    `fail_if` was broken or the run is invalid, the record is returned, and its `exit_status` is 1.
    """
    arguments = command_line(_binary.experiments(), experiment, servers, options)
    # Before the servers, which `--` introduces.
    arguments[1:1] = ["--quiet"] if quiet else []
    if out is not None:
        return _recorded(arguments, _file(Path(out), experiment), keeps=True)
    folder = tempfile.mkdtemp(prefix="tcptoll-")
    try:
        record = _recorded(arguments, Path(folder, f"{experiment}.jsonl"), keeps=False)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(record, shutil.rmtree, folder, ignore_errors=True)
    return record


def _recorded(arguments: list[str], path: Path, keeps: bool) -> Record:
    """Runs, and reads the record; `keeps` if the file stays when the run fails."""
    replaces = path.exists()
    status, stderr = _measure([_binary.find(), arguments[0], f"--out={path}", *arguments[1:]])
    if status not in _MEASURED or not path.exists():
        message = _binary.sentence(stderr, status)
        if keeps and path.exists() and not replaces:
            message += f" (what was measured is in {path})"
        raise TcptollError(message, status)
    record = Record(path)
    record.exit_status = status
    return record


def _file(out: Path, experiment: str) -> Path:
    if out.suffix == ".jsonl":
        out.parent.mkdir(parents=True, exist_ok=True)
        return out
    out.mkdir(parents=True, exist_ok=True)
    begun = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = out / f"{experiment}-{begun}.jsonl"
    number = 2
    while path.exists():
        path = out / f"{experiment}-{begun}-{number}.jsonl"
        number += 1
    return path


def _measure(command: list[str]) -> tuple[int, str]:
    """Exit status, and the end of what was written on stderr, which is passed on meanwhile."""
    reader, writer = _channel()
    text = codecs.getincrementaldecoder("utf-8")("replace")
    tail = ""
    try:
        nothing = subprocess.DEVNULL
        child = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=writer)
    except OSError as error:
        os.close(reader)
        raise TcptollError(f"{command[0]} cannot be run: {error.strerror}") from error
    finally:
        os.close(writer)
    try:
        while chunk := _read(reader):
            shown = text.decode(chunk)
            tail = (tail + shown)[-_TAIL:]
            sys.stderr.write(shown)
            sys.stderr.flush()
        child.wait()
    except KeyboardInterrupt:
        # The run ends with what it has, and its record is whole.
        child.send_signal(signal.SIGINT)
        while _read(reader):
            pass
        raise
    finally:
        os.close(reader)
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
        child.wait()
    status = child.returncode
    return (128 - status if status < 0 else status), tail


def _channel() -> tuple[int, int]:
    """Two ends for the program's stderr: a terminal of the same width, if ours is one, so that it shows progress."""
    if not sys.stderr.isatty():
        return os.pipe()
    import fcntl
    import pty
    import struct
    import termios

    reader, writer = pty.openpty()
    size = shutil.get_terminal_size()
    with contextlib.suppress(OSError):
        fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", size.lines, size.columns, 0, 0))
    return reader, writer


def _read(reader: int) -> bytes:
    try:
        return os.read(reader, 4096)
    except OSError:  # The other end of a terminal is closed.
        return b""
