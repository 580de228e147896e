"""Runs a plan on an executor: who is next, the deadline, what is checked and stored."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping

from .._errors import TcptollError, printable
from .plan import Event, Executor, Failure, Gone, Lost, Plan, Progress, Result
from .results import Refusal, check
from .store import Point, Store, now, write

#: A point whose worker goes away more often is given up.
_MOST_LOSSES = 10
#: Before it is tried again.
_PAUSE_S = 0.5
#: How long the end may take after the deadline: closing connections, and stopping local programs.
CLOSE_S = 0.8
#: fleet.json is written at most this often while points change.
_SAVE_S = 0.5


class Runner:
    """One run of a fleet. The state of every point is in `store.state`, and is written while it changes."""

    def __init__(
        self, plan: Plan, executor: Executor, store: Store, *, at_once: int, deadline_s: float, deadline: str,
        patience_s: float, show: Callable[[bool], None], absent: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._plan, self._executor, self._store = plan, executor, store
        self._at_once, self._deadline, self._patience_s = at_once, deadline, patience_s
        self._begun = time.monotonic()
        self._ends = self._begun + deadline_s
        self._show, self._absent = show, absent or {}
        self._saved = 0.0
        self._waiting: deque[str] = deque()
        self._running: dict[str, float] = {}
        self._submitted: dict[str, float] = {}
        self._not_before: dict[str, float] = {}

    def run(self) -> None:
        """Until every point has an end or the deadline has come. A point that is done already is not run again."""
        self._queue()
        try:
            while (self._waiting or self._running) and (left := self._ends - time.monotonic()) > 0:
                self._pass()
                self._start()
                self._handle(self._executor.next_event(min(0.2, left)))
                for name, begun in self._running.items():
                    self._store.state.points[name].seconds = round(time.monotonic() - begun, 1)
                self._save()
                self._show(False)
            self._end(f"no result by the deadline of {self._deadline}")
        except BaseException:
            self._store.state.interrupted = True
            self._end("interrupted")
            raise
        finally:
            self._executor.close(CLOSE_S)
            self._store.state.ended = now()
            self._store.save()
            self._show(True)

    def _queue(self) -> None:
        points = self._store.state.points
        for name in self._plan.points:
            known = points.get(name)
            if known and known.state == "done" and self._store.path_of(name).exists():
                continue
            points[name] = Point(planned=self._plan.study.trials)
            if name in self._absent:
                points[name].state, points[name].reason = "missing", self._absent[name]
                continue
            self._waiting.append(name)
            if not self._executor.present(name):
                points[name].reason = "no worker yet"
        self._store.save()
        self._show(False)

    def _start(self) -> None:
        """Begins as many points as allowed. A point without a worker lets the others pass, so nothing hangs on it."""
        for _ in range(len(self._waiting)):
            if len(self._running) >= self._at_once:
                return
            name = self._waiting.popleft()
            if time.monotonic() < self._not_before.get(name, 0.0) or not self._executor.present(name):
                self._waiting.append(name)
                continue
            point = self._store.state.points[name]
            point.state, point.reason = "running", ""
            point.attempts += 1
            moment = time.monotonic()
            self._running[name] = moment - point.seconds
            work = self._plan.work(name, point.attempts, secrets.token_hex(8), max(0.0, self._ends - moment), CLOSE_S / 2)
            self._submitted[name] = moment
            self._executor.submit(work)

    def _pass(self) -> None:
        """Gives up a point that takes far longer than its study, if others wait for it."""
        for name in list(self._running) if self._waiting else ():
            if time.monotonic() - self._submitted[name] > self._patience_s:
                point = self._store.state.points[name]
                point.state, point.reason = "missing", f"no result within {self._patience_s:.0f} s, and others had to wait"
                point.seconds = round(time.monotonic() - self._running.pop(name), 3)
                self._executor.cancel(name)

    def _handle(self, event: Event | None) -> None:
        if event is None:
            return
        if isinstance(event, Gone):
            self._end(event.reason)
            self._waiting.clear()
            return
        begun = self._running.get(event.point)
        if begun is None:  # Cancelled meanwhile, or not ours.
            return
        point = self._store.state.points[event.point]
        point.seconds = round(time.monotonic() - begun, 3)
        if isinstance(event, Progress):
            point.done, point.found = event.done, event.found
            return
        del self._running[event.point]
        if isinstance(event, Result):
            self._result(event, point)
        elif isinstance(event, Failure):
            point.state, point.reason = "failed", printable(event.reason, 2000)
        elif isinstance(event, Lost):
            self._lost(event, point)

    def _result(self, event: Result, point: Point) -> None:
        try:
            checked = check(event.payload, self._plan, event.point)
        except Refusal as refusal:
            point.state, point.reason = "failed", str(refusal)
            return
        try:
            write(self._store.path_of(event.point), checked.record)
        except TcptollError as error:
            point.state, point.reason = "failed", str(error)
            raise
        point.state, point.status = "done", checked.status
        point.reason = "" if checked.status == 0 else "exit status 1: see its report"
        point.done, point.found = checked.trials, checked.trials - checked.measured

    def _lost(self, event: Lost, point: Point) -> None:
        self._executor.cancel(event.point)
        reason = printable(event.reason, 500)
        if self._plan.split is not None:
            point.state, point.reason = "failed", f"{reason}; a shared load cannot be resumed"
        elif event.busy:
            point.state, point.reason, point.attempts = "waiting", reason, point.attempts - 1
            self._again(event.point)
        elif point.attempts >= _MOST_LOSSES:
            point.state, point.reason = "failed", f"{reason}; given up after {point.attempts} attempts"
        else:
            point.state, point.reason = "waiting", reason
            self._again(event.point)

    def _again(self, name: str) -> None:
        self._waiting.append(name)
        self._not_before[name] = time.monotonic() + _PAUSE_S

    def _end(self, reason: str) -> None:
        """Marks the points that have no result as missing, and asks their workers to stop."""
        for name in [*self._running, *self._waiting]:
            point = self._store.state.points[name]
            before = f" (before: {point.reason})" if point.reason else ""
            point.state, point.reason = "missing", reason + before
            if name in self._running:
                point.seconds = round(time.monotonic() - self._running[name], 3)
                self._executor.cancel(name)
        self._running.clear()

    def _save(self) -> None:
        moment = time.monotonic()
        if moment - self._saved >= _SAVE_S:
            self._saved = moment
            self._store.save()
