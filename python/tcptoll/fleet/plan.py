"""What a fleet runs: the study, its vantage points, and the messages between the runner and an executor."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from .._errors import TcptollError, printable

#: Raised when the meaning of `Work` or of a result changes, so that different versions refuse each other.
PROTOCOL = 1
#: Limits of what is sent to a worker and of what is accepted from it.
MOST_STUDY_BYTES = 1 << 20
MOST_RECORD_BYTES = 64 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def canonical(study: object) -> str:
    """JSON that is the same for studies that are the same. Raises ValueError if it is nested too deeply."""
    try:
        return json.dumps(study, sort_keys=True, allow_nan=False)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def is_name(text: object) -> bool:
    """Whether a vantage point may have this name. It becomes the name of a file, so the rule is strict."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


NAME_RULE = "a name has 1 to 64 letters, digits, '.', '_' or '-', and begins with a letter or a digit"


def seconds(text: str) -> float:
    """A duration such as 90s, 30m or 1h30m, in seconds. Raises ValueError with the reason."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("a time needs a unit: 500ms, 90s, 30m, 1h or 1h30m")
    total = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if not 0 < total <= 30 * 86400:
        raise ValueError("a time must be more than 0 and at most 30d")
    return total


@dataclass(frozen=True)
class Study:
    """A study as the program checked it."""

    text: str
    name: str
    experiment: str
    arms: tuple[str, ...]
    record_version: int
    most_rounds: int
    round_s: float
    least_s: float
    most_s: float
    targets: tuple[str, ...]
    #: As the header of a record has it, in `canonical` form.
    document: str
    #: Why its load cannot be split over points; empty if it can.
    not_split: str = ""

    @property
    def trials(self) -> int:
        """Trials that a complete run has at most, without repetitions."""
        return len(self.arms) * self.most_rounds


@dataclass(frozen=True)
class Clock:
    """A clock of a vantage point relative to ours: `offset_s` ahead, wrong by at most `bound_s`."""

    offset_s: float
    bound_s: float


@dataclass(frozen=True)
class Split:
    """A load that the points share: every point takes its part of each trial, and all begin a trial together."""

    start_ns: int
    every: str
    clocks: dict[str, Clock] = field(default_factory=dict)

    @property
    def bound_s(self) -> float:
        """Within what the difference between two points' clocks is known: the sum of the two largest errors."""
        return sum(sorted(clock.bound_s for clock in self.clocks.values())[-2:])


@dataclass(frozen=True)
class Plan:
    """One fleet. Its key and those of its points depend on all that decides what is measured."""

    study: Study
    seed: int
    version: str
    points: tuple[str, ...]
    split: Split | None = None

    @property
    def key(self) -> str:
        """Key of the whole fleet. The points are not in it: points may join later."""
        return _key(self.study.text, "", self.seed, self.version, _moment(self.split))

    def key_of(self, point: str) -> str:
        """Key of a point: its record on the worker has this name."""
        share = "" if self.split is None else f"{self.share_of(point)} {self.split.every} "
        return _key(self.study.text, point, self.seed, self.version, share + _moment(self.split))

    def seed_of(self, point: str) -> int:
        """A seed of its own for each point: with one seed, all points would have the same order of arms and the
        same random arrivals. Points that share a load run the same arm at the same time, so they share the seed."""
        if self.split is not None:
            return self.seed
        return int.from_bytes(hashlib.sha256(f"{self.seed} {point}".encode()).digest()[:6], "big")

    def share_of(self, point: str) -> str:
        """Which part of the load this point takes, as `--share` writes it."""
        return f"{self.points.index(point) + 1}/{len(self.points)}"

    def work(self, point: str, attempt: int, token: str, most_s: float, stop_s: float) -> Work:
        """What is sent to the point."""
        split = self.split
        return Work(
            protocol=PROTOCOL, key=self.key_of(point), point=point, study=self.study.text, seed=self.seed_of(point),
            version=self.version, attempt=attempt, token=token, most_s=most_s, stop_s=stop_s,
            share=self.share_of(point) if split else "", every=split.every if split else "",
            start_at=_instant(split.start_ns) if split else "",
            clock_ahead=f"{split.clocks[point].offset_s:.6f}" if split else "",
        )  # fmt: skip


@dataclass(frozen=True)
class Work:
    """A point's part, sent as plain data. The worker makes the command line itself."""

    protocol: int
    key: str
    point: str
    study: str
    seed: int
    version: str
    attempt: int
    #: Only who has it can report progress for the point.
    token: str
    #: The worker stops by itself after this time, also if nobody can reach it any more.
    most_s: float
    #: How long the program may take to end after it was asked to stop.
    stop_s: float
    share: str = ""
    every: str = ""
    #: The same for all points, on our clock; and how far the point's clock is ahead of it, s.
    start_at: str = ""
    clock_ahead: str = ""

    def message(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def _key(study: str, point: str, seed: int, version: str, more: str) -> str:
    # Lengths go in first, so that no two lists of parts have the same bytes.
    parts = [part.encode() for part in (study, point, str(seed), version, more)]
    return hashlib.sha256(b"".join(b"%d:%s" % (len(part), part) for part in parts)).hexdigest()


def _moment(split: Split | None) -> str:
    return "" if split is None else f"{split.start_ns} {split.every}"


def _instant(ns: int) -> str:
    """RFC 3339 in UTC, to the microsecond."""
    import datetime

    us = ns // 1000
    moment = datetime.datetime.fromtimestamp(us // 1_000_000, datetime.timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{us % 1_000_000:06d}Z"


class PointError(TcptollError):
    """A vantage point cannot take part. The message says why."""


@dataclass(frozen=True)
class Progress:
    """A point has `done` trials in its record; `found` of them were there before this attempt."""

    point: str
    done: int
    found: int


@dataclass(frozen=True)
class Result:
    """What a worker returned. Nothing in it has been checked yet."""

    point: str
    payload: object


@dataclass(frozen=True)
class Failure:
    """A point will have no result."""

    point: str
    reason: str


@dataclass(frozen=True)
class Lost:
    """The worker of a point went away, or is busy. The point can be tried again."""

    point: str
    reason: str
    busy: bool = False


@dataclass(frozen=True)
class Gone:
    """The executor can do nothing more, for any point."""

    reason: str


Event = Progress | Result | Failure | Lost | Gone


class Executor(Protocol):
    """Reaches vantage points. It decides nothing: deadline, order, retries and checks are the runner's."""

    def points(self) -> Sequence[str]:
        """Names of the points that are there now, as given: they are not checked."""

    def present(self, point: str) -> bool:
        """Whether a worker of this name is there now."""

    def workers(self, point: str) -> int:
        """How many have this name now."""
        return int(self.present(point))

    def probe(self, point: str) -> str:
        """Version of the program there. Raises PointError."""

    def clock(self, point: str) -> Clock:
        """The clock there. Raises PointError."""

    def submit(self, work: Work) -> None:
        """Begins; the events of the point follow. Never waits."""

    def next_event(self, timeout: float) -> Event | None:
        """The next event, or None after `timeout` seconds."""

    def cancel(self, point: str) -> None:
        """Stops the work of a point. Never waits. No event of it is passed on afterwards."""

    def close(self, timeout: float) -> None:
        """Ends all work, in at most `timeout` seconds."""


def least_error(exchange: Callable[[], int], times: int = 20) -> Clock:
    """A clock from exchanges: we ask, the point answers with its wall clock in ns.

    The exchange with the shortest round trip has the smallest error: at most half of the round trip.
    """
    import time

    best: tuple[int, int] | None = None
    for _ in range(times):
        asked, sent = time.monotonic_ns(), time.time_ns()
        theirs = exchange()
        took = time.monotonic_ns() - asked
        if best is None or took < best[0]:
            best = took, theirs - sent - took // 2
    assert best is not None
    return Clock(best[1] / 1e9, best[0] / 2e9)


def version_of(text: str) -> str:
    """The version in what `tcptoll --version` prints. Raises PointError."""
    words = text.split("\n")[0].split()
    if len(words) < 2 or words[0] != "tcptoll" or not re.fullmatch(r"[0-9A-Za-z.+-]{1,64}", words[1]):
        raise PointError(f"its tcptoll --version printed {printable(text, 80)!r}")
    return words[1]
