"""Vantage points over the user's own `ssh`: nothing but tcptoll has to be installed there."""

from __future__ import annotations

import contextlib
import math
import os
import queue
import shlex
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Any

from .._errors import TcptollError, printable
from .frames import read_frames
from .hosts import Host
from .plan import (MOST_RECORD_BYTES, Clock, Event, Executor, Failure, Lost, PointError, Progress, Result, Work,
                   least_error, version_of)  # fmt: skip
from .remote import CLOCK, SCRIPT, VERSION

#: Environment variable with the ssh command, as for the program.
VARIABLE = "TCPTOLL_SSH"
_OPTIONS = ["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]
_PROBE_S = 20.0
#: Exit status of ssh itself, as when the connection breaks.
_SSH_FAILED = 255


class SshExecutor(Executor):
    """One `ssh` process for each point that measures; its end is the end of the work there."""

    def __init__(self, listed: Sequence[Host], command: str = "") -> None:
        self._hosts = {host.name: host for host in listed}
        self._ssh = shlex.split(os.environ.get(VARIABLE) or command or "ssh")
        self._events: queue.SimpleQueue[tuple[int, Event]] = queue.SimpleQueue()
        self._numbers: dict[str, int] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._again: dict[str, float] = {}

    def points(self) -> Sequence[str]:
        return list(self._hosts)

    def present(self, point: str) -> bool:
        # A host that was lost is not asked again at once.
        return point in self._hosts and time.monotonic() >= self._again.get(point, 0.0)

    def probe(self, point: str) -> str:
        host = self._hosts[point]
        try:
            done = subprocess.run(
                self._command(host, VERSION, host.binary), stdin=subprocess.DEVNULL, capture_output=True,
                timeout=_PROBE_S, check=False, start_new_session=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise PointError(f"ssh {host.ssh} did not answer within {_PROBE_S:.0f} s") from error
        except OSError as error:
            raise PointError(f"{printable(self._ssh[0])} cannot be run: {error.strerror}") from error
        if done.returncode != 0:
            raise PointError(_said(host, done.stderr, done.returncode))
        # The remote shell may print before: only the line that the script marks counts.
        _, marked, text = done.stdout[-4096:].decode("utf-8", "replace").rpartition("\x02")
        if not marked:
            raise PointError(f"ssh {host.ssh} did not run the script")
        return version_of(text)

    def clock(self, point: str) -> Clock:
        host = self._hosts[point]
        child = self._begin(host, CLOCK)
        guard = threading.Timer(_PROBE_S, child.kill)
        guard.start()
        assert child.stdin and child.stdout
        stdin, stdout = child.stdin, child.stdout

        def exchange() -> int:
            stdin.write(b"\n")
            stdin.flush()
            line = stdout.readline(4096)
            while line and b"\x02" not in line:
                line = stdout.readline(4096)
            digits = line.rpartition(b"\x02")[2].strip()
            if not digits.isdigit() or len(digits) < 19:
                raise PointError(f"the clock of {host.ssh} could not be read: its `date +%s%N` must give nanoseconds")
            return int(digits)

        try:
            return least_error(exchange)
        except OSError as error:
            raise PointError(f"the clock of {host.ssh} could not be read: the connection ended") from error
        finally:
            guard.cancel()
            _finish(child, 0.5)

    def submit(self, work: Work) -> None:
        number = self._numbers[work.point] = self._numbers.get(work.point, 0) + 1
        threading.Thread(target=self._run, args=(work, number), name=work.point, daemon=True).start()

    def next_event(self, timeout: float) -> Event | None:
        try:
            number, event = self._events.get(timeout=max(0.0, timeout))
        except queue.Empty:
            return None
        if isinstance(event, Progress | Result | Failure | Lost) and self._numbers.get(event.point) != number:
            return None
        return event

    def cancel(self, point: str) -> None:
        self._numbers[point] = self._numbers.get(point, 0) + 1
        child = self._children.get(point)
        if child and child.stdin:
            # The end of its input ends the program there.
            with contextlib.suppress(OSError):
                child.stdin.close()

    def close(self, timeout: float) -> None:
        ends = time.monotonic() + timeout
        for point in list(self._children):
            self.cancel(point)
        for child in list(self._children.values()):
            _finish(child, max(0.05, ends - time.monotonic()))

    def _run(self, work: Work, number: int) -> None:
        host = self._hosts[work.point]
        event: Event
        try:
            child = self._begin(host, SCRIPT, host.binary, work.key, work.point, str(work.seed), work.version,
                                str(len(work.study.encode())), str(math.ceil(work.most_s)), str(MOST_RECORD_BYTES), work.share,
                                work.start_at, work.every, work.clock_ahead)  # fmt: skip
            self._children[work.point] = child
            event = self._follow(work, host, child, number)
        except Exception as error:
            event = Failure(work.point, str(error) if isinstance(error, TcptollError) else f"{type(error).__name__}: {error}")
        self._children.pop(work.point, None)
        self._events.put((number, event))

    def _follow(self, work: Work, host: Host, child: subprocess.Popen[bytes], number: int) -> Event:
        assert child.stdin and child.stdout and child.stderr
        errors = bytearray()
        drain = threading.Thread(target=_drain, args=(child.stderr, errors), daemon=True)
        drain.start()
        with contextlib.suppress(OSError):
            child.stdin.write(work.study.encode())
            child.stdin.flush()
        found, payload = 0, None
        for kind, value in read_frames(child.stdout):
            if kind == "found":
                found = value
            if kind in ("found", "trials"):
                self._events.put((number, Progress(work.point, value, found)))
            if kind == "result":
                payload = value
        status = _finish(child, 5.0)
        drain.join(1.0)
        if payload is not None:
            return Result(work.point, payload)
        self._again[work.point] = time.monotonic() + 2.0
        reason = _said(host, bytes(errors), status)
        return Lost(work.point, reason) if status == _SSH_FAILED or status < 0 else Failure(work.point, reason)

    def _begin(self, host: Host, script: str, *arguments: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        try:
            return subprocess.Popen(
                self._command(host, script, *arguments), stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except OSError as error:
            raise PointError(f"{printable(self._ssh[0])} cannot be run: {error.strerror}") from error

    def _command(self, host: Host, script: str, *arguments: str) -> list[str]:
        # ssh joins its arguments with spaces and gives them to the login shell there, whichever it is.
        return [*self._ssh, *_OPTIONS, host.ssh, shlex.join(["sh", "-c", script, "sh", *arguments])]


def _drain(file: Any, into: bytearray) -> None:
    while chunk := file.read1(4096):
        into += chunk
        del into[: -(64 << 10)]


def _finish(child: subprocess.Popen[bytes], timeout: float) -> int:
    """Ends a process: its input ends, and after `timeout` it is killed."""
    if child.stdin:
        with contextlib.suppress(OSError):
            child.stdin.close()
    try:
        return child.wait(timeout)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def _said(host: Host, errors: bytes, status: int) -> str:
    """What ssh or the remote side wrote, as one sentence."""
    lines = [line.strip() for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
    ended = f"exit status {status}" if status >= 0 else f"ended by signal {-status}"
    said = printable(lines[-1].removeprefix("error: "), 500) if lines else ended
    return f"ssh {host.ssh}: {said}"
