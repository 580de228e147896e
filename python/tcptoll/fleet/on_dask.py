"""Vantage points that are Dask workers, for fleets that are always on.

Dask is asked for little: to reach a worker by the name of its vantage point, and to report one that goes away.
Nothing is left to it that could wait for ever. A point is a resource of a worker, and a task that is pinned to a
dead worker is pending for ever, so a point without a worker is not submitted, and the runner withdraws the task of a
worker that dies and submits it again. Dask measures a finished result that was not fetched again; the record on the
worker's disk makes that harmless.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import distributed

from .._errors import printable
from .connection import Connection
from .gathering import Gathering, TooLarge
from .plan import (
    MOST_RECORD_BYTES,
    Clock,
    Event,
    Executor,
    Failure,
    Gone,
    Lost,
    PointError,
    Progress,
    Result,
    Work,
    least_error,
)
from .worker import RESOURCE, clock_there, measure_there, probe_there

#: A result is a zlib'd record and a few numbers.
_MOST_RESULT_BYTES = MOST_RECORD_BYTES + (1 << 20)
_ASK_S = 20.0
#: A worker that has not begun by then is busy, for another fleet.
_BEGIN_S = 30.0


class DaskExecutor(Executor):
    """Reaches the workers of a scheduler."""

    def __init__(
        self, address: str, security: Any = None, measure: Callable[[dict[str, Any], str], Any] = measure_there
    ) -> None:
        self._address, self._measure = address, measure
        self._topic = f"tcptoll-{uuid.uuid4().hex}"
        self._events: queue.SimpleQueue[tuple[str, Event]] = queue.SimpleQueue()
        self._tokens: dict[str, str] = {}
        # These two belong to the thread of the connection: the task of each point, and the worker that has begun it.
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._at: dict[str, str] = {}
        self._connection = Connection(address, security, self._left, self._gone)
        self._gathering = Gathering(self._connection.client, _MOST_RESULT_BYTES)
        self._connection.subscribe(self._topic, self._progress)

    def points(self) -> Sequence[str]:
        return self._connection.points()

    def present(self, point: str) -> bool:
        return self.workers(point) > 0

    def workers(self, point: str) -> int:
        return len(self._connection.workers_of(point))

    def probe(self, point: str) -> str:
        answers = list(self._ask(point, probe_there).values())
        for answer in answers:
            if not isinstance(answer, dict) or not isinstance(answer.get("version"), str):
                raise PointError(printable(str(answer.get("error") if isinstance(answer, dict) else answer), 500))
        found = sorted({answer["version"] for answer in answers})
        if len(found) != 1:
            raise PointError(f"its workers have different versions: {printable(', '.join(found), 200) or 'none answered'}")
        return str(found[0])

    def clock(self, point: str) -> Clock:
        def exchange() -> int:
            answers = list(self._ask(point, clock_there).values())
            if len(answers) != 1 or not isinstance(answers[0], int):
                raise PointError("a shared load needs exactly one worker with this name")
            return answers[0]

        return least_error(exchange)

    def submit(self, work: Work) -> None:
        self._tokens[work.point] = work.token

        def begin() -> None:
            self._tasks[work.point] = self._connection.loop.create_task(self._follow(work))

        self._connection.loop.call_soon_threadsafe(begin)

    def next_event(self, timeout: float) -> Event | None:
        try:
            token, event = self._events.get(timeout=max(0.0, timeout))
        except queue.Empty:
            return None
        if isinstance(event, Progress | Result | Failure | Lost) and self._tokens.get(event.point) != token:
            return None  # Of an attempt that was cancelled.
        return event

    def cancel(self, point: str) -> None:
        self._tokens.pop(point, None)

        def end() -> None:
            task = self._tasks.pop(point, None)
            self._at.pop(point, None)
            if task is not None:
                task.cancel()

        self._connection.loop.call_soon_threadsafe(end)

    def close(self, timeout: float) -> None:
        for point in list(self._tokens):
            self.cancel(point)
        self._connection.close(timeout)

    async def _follow(self, work: Work) -> None:
        """Waits for the result of a point. The runner's deadline ends the wait, by `cancel`."""
        point, client = work.point, self._connection.client
        # A key of its own for each attempt: Dask must neither reuse a result nor measure a lost one again.
        key = f"tcptoll-{work.key[:16]}-{uuid.uuid4().hex}"
        future = client.submit(
            self._measure, work.message(), self._topic, key=key, resources={RESOURCE + point: 1}, retries=0, pure=False
        )
        with client.as_current():
            finished = asyncio.ensure_future(distributed.wait(future))
        try:
            await asyncio.wait([finished], timeout=_BEGIN_S)
            if not finished.done() and point not in self._at:
                self._put(point, Lost(point, "its worker is busy", busy=True))
                return
            await finished
            self._put(point, await self._outcome(point, future))
        except (OSError, KeyError, asyncio.TimeoutError, concurrent.futures.CancelledError) as error:
            # Its record is still on its disk. Without a scheduler, `_gone` follows.
            if client.status == "running":
                self._put(point, Lost(point, f"its result was lost ({type(error).__name__})"))
        except Exception as error:
            self._put(point, Failure(point, f"{type(error).__name__}: {error}"))
        finally:
            finished.cancel()
            with contextlib.suppress(Exception):
                future.release()

    async def _outcome(self, point: str, future: Any) -> Event:
        if future.status == "error":
            error = await future.exception()
            if isinstance(error, distributed.scheduler.KilledWorker):
                return Lost(point, "its worker died several times")
            return Failure(point, f"{type(error).__name__}: {error}")
        try:
            return Result(point, await self._gathering.result(future))
        except TooLarge as error:
            return Failure(point, f"its result has {error.size / 1e6:.0f} MB; the limit is {MOST_RECORD_BYTES >> 20} MiB")

    def _left(self, address: str) -> None:
        for point in list(self._tasks):
            at = self._at.get(point)
            if at == address or (at is None and not self.present(point)):
                self._put(point, Lost(point, "its worker went away"))

    def _gone(self) -> None:
        self._events.put(("", Gone(f"the scheduler {self._address} closed the connection")))

    def _progress(self, event: Any) -> None:
        _, message = event
        if not isinstance(message, dict):
            return
        point, done, found = message.get("point"), message.get("done"), message.get("found")
        if not isinstance(point, str) or message.get("token") != self._tokens.get(point, ""):
            return
        if type(done) is int and type(found) is int and 0 <= found < 1 << 31 and 0 <= done < 1 << 31:
            self._at[point] = str(message.get("address"))
            self._put(point, Progress(point, done, found))

    def _put(self, point: str, event: Event) -> None:
        self._events.put((self._tokens.get(point, ""), event))

    def _ask(self, point: str, function: Callable[..., Any]) -> dict[str, Any]:
        """Runs a function on all workers of a point, also while they measure."""
        connection, addresses = self._connection, self._connection.workers_of(point)
        try:
            ask = connection.client.run
            return dict(connection.call(lambda: ask(function, workers=addresses, on_error="return"), _ASK_S))
        except (OSError, TimeoutError, ValueError) as error:
            raise PointError(f"its worker did not answer ({printable(str(error) or type(error).__name__, 200)})") from error
