"""Vantage points that are processes on this machine: to try a study out, and for hosts of the lab."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence

from .plan import Clock, Event, Executor, Failure, Progress, Result, Work
from .task import Settings, probe, run_or_resume


class LocalExecutor(Executor):
    """Points `local-1` to `local-N`, one thread each while it measures."""

    def __init__(self, number: int, settings: Settings | None = None) -> None:
        self._names = [f"local-{n + 1}" for n in range(number)]
        self._settings = settings or Settings()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._running: dict[str, tuple[threading.Event, threading.Thread]] = {}

    def points(self) -> Sequence[str]:
        return self._names

    def present(self, point: str) -> bool:
        return point in self._names

    def probe(self, point: str) -> str:
        return probe(self._settings)

    def clock(self, point: str) -> Clock:
        return Clock(0.0, 0.0)

    def submit(self, work: Work) -> None:
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(work, stop), name=work.point, daemon=True)
        self._running[work.point] = stop, thread
        thread.start()

    def next_event(self, timeout: float) -> Event | None:
        try:
            return self._events.get(timeout=max(0.0, timeout))
        except queue.Empty:
            return None

    def cancel(self, point: str) -> None:
        if point in self._running:
            self._running[point][0].set()

    def close(self, timeout: float) -> None:
        ends = time.monotonic() + timeout
        for stop, _ in self._running.values():
            stop.set()
        for _, thread in self._running.values():
            thread.join(max(0.0, ends - time.monotonic()))

    def _run(self, work: Work, stop: threading.Event) -> None:
        point = work.point
        event: Event
        try:
            payload = run_or_resume(
                work, self._settings, lambda done, found: self._put(stop, Progress(point, done, found)), stop.is_set
            )
            event = Result(point, payload)
        except Exception as error:  # A thread that dies silently would leave its point waiting until the deadline.
            event = Failure(point, f"{type(error).__name__}: {error}")
        self._put(stop, event)

    def _put(self, stop: threading.Event, event: Event) -> None:
        if not stop.is_set():
            self._events.put(event)
