"""Vantage points that are Dask workers, for fleets that are always on.

Dask is asked for little: to reach a worker by the name of its vantage point, and to say when one goes away.
Nothing is left to it that could wait for ever: a point without a worker is not submitted, and the task of a
worker that dies is withdrawn.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import distributed

from .._errors import TcptollError, printable
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

T = TypeVar("T")
#: A result is a zlib'd record and a few numbers.
_MOST_RESULT_BYTES = MOST_RECORD_BYTES + (1 << 20)
_CONNECT_S = 15.0
_ASK_S = 20.0
_GATHER_S = 60.0


class DaskExecutor(Executor):
    """Reaches the workers of a scheduler. A thread of its own runs the connection."""

    def __init__(
        self, address: str, security: Any = None, measure: Callable[[dict[str, Any], str], Any] = measure_there
    ) -> None:
        self._address, self._measure = address, measure
        self._topic = f"tcptoll-{uuid.uuid4().hex}"
        self._events: queue.SimpleQueue[tuple[str, Event]] = queue.SimpleQueue()
        self._tasks: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._tokens: dict[str, str] = {}
        #: Address of each worker with its points, and the worker that has begun each point.
        self._workers: dict[str, list[str]] = {}
        self._at: dict[str, str] = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="tcptoll-dask", daemon=True).start()
        try:
            self._client = self._call(self._connect(security), _CONNECT_S + 5)
        except (OSError, TimeoutError, ValueError, RuntimeError) as error:
            raise TcptollError(
                f"--scheduler {printable(address)}: no connection ({printable(str(error) or type(error).__name__, 300)}): "
                "is it running, and are the --tls options the same on both sides?"
            ) from error

    def points(self) -> Sequence[str]:
        return list(dict.fromkeys(name for names in list(self._workers.values()) for name in names))

    def present(self, point: str) -> bool:
        return any(point in names for names in list(self._workers.values()))

    def probe(self, point: str) -> str:
        versions: dict[str, Any] = self._ask(point, probe_there)
        for answer in versions.values():
            if not isinstance(answer, dict) or not isinstance(answer.get("version"), str):
                said = answer.get("error") if isinstance(answer, dict) else answer
                raise PointError(printable(str(said), 500))
        found = sorted({answer["version"] for answer in versions.values()})
        if len(found) != 1:
            raise PointError(f"its workers have different versions: {printable(', '.join(found), 200)}")
        return str(found[0])

    def clock(self, point: str) -> Clock:
        def exchange() -> int:
            answers = list(self._ask(point, clock_there).values())
            if len(answers) != 1 or not isinstance(answers[0], int):
                raise PointError("a shared load needs exactly one worker with this name")
            return answers[0]

        return least_error(exchange)

    def submit(self, work: Work) -> None:
        key = f"tcptoll-{work.key[:16]}-{uuid.uuid4().hex}"
        self._tokens[work.point] = work.token

        def begin() -> None:
            self._tasks[work.point] = key, self._loop.create_task(self._follow(work, key))

        self._loop.call_soon_threadsafe(begin)

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
            _, task = self._tasks.pop(point, ("", None))
            self._at.pop(point, None)
            if task is not None:
                task.cancel()

        self._loop.call_soon_threadsafe(end)

    def close(self, timeout: float) -> None:
        for point in list(self._tokens):
            self.cancel(point)
        # A scheduler that does not answer must not hold us: the thread ends with the process.
        with contextlib.suppress(Exception):
            self._call(self._client.close(timeout=timeout), timeout)

    async def _connect(self, security: Any) -> Any:
        client: Any = await distributed.Client(
            self._address, asynchronous=True, security=security, timeout=_CONNECT_S, set_as_default=False,
            direct_to_workers=False,
        )  # fmt: skip
        client.subscribe_topic("all", self._membership)
        client.subscribe_topic(self._topic, self._progress)
        await self._look(client)
        self._watch = self._loop.create_task(self._guard(client))
        return client

    async def _look(self, client: Any) -> None:
        """Which workers there are, with all of them: `scheduler_info` names a few."""
        try:
            identity = await client.scheduler.identity(n_workers=-1)
        except TypeError:  # Older versions list all.
            identity = await client.scheduler.identity()
        self._workers = {
            str(address): [
                str(name).removeprefix(RESOURCE) for name in worker.get("resources", {}) if str(name).startswith(RESOURCE)
            ]
            for address, worker in identity["workers"].items()
        }

    async def _guard(self, client: Any) -> None:
        """Reports a scheduler that goes away, and finds workers whose event was missed."""
        looked = time.monotonic()
        while client.status == "running":
            await asyncio.sleep(0.2)
            if time.monotonic() - looked > 5.0:
                looked = time.monotonic()
                with contextlib.suppress(OSError, asyncio.TimeoutError):
                    await asyncio.wait_for(self._look(client), 5.0)
        self._workers = {}
        self._events.put(("", Gone(f"the scheduler {self._address} closed the connection")))

    async def _membership(self, event: Any) -> None:
        _, message = event
        action, address = message.get("action"), message.get("worker")
        if action == "remove-worker":
            self._workers.pop(address, None)
            for point, (_, _task) in list(self._tasks.items()):
                at = self._at.get(point)
                if at == address or (at is None and not self.present(point)):
                    self._put(point, Lost(point, "its worker went away"))
        elif action == "add-worker":
            with contextlib.suppress(OSError):
                await self._look(self._client)

    def _progress(self, event: Any) -> None:
        _, message = event
        if not isinstance(message, dict):
            return
        point, done, found = message.get("point"), message.get("done"), message.get("found")
        if not isinstance(point, str) or message.get("token") != self._tokens.get(point, ""):
            return
        if all(type(n) is int and 0 <= n < 1 << 31 for n in (done, found)):
            self._at[point] = str(message.get("address"))
            self._put(point, Progress(point, int(done or 0), int(found or 0)))

    async def _follow(self, work: Work, key: str) -> None:
        """Waits for the result of a point. The runner's deadline ends the wait, by `cancel`."""
        point = work.point
        future = self._client.submit(
            self._measure, work.message(), self._topic, key=key, resources={RESOURCE + point: 1}, retries=0, pure=False,
        )  # fmt: skip
        try:
            await distributed.wait(future)
            if future.status == "error":
                error = await future.exception()
                if isinstance(error, distributed.scheduler.KilledWorker):
                    self._put(point, Lost(point, "its worker died, several times"))
                else:
                    self._put(point, Failure(point, f"{type(error).__name__}: {error}"))
                return
            size = (await self._client.nbytes([key], summary=False)).get(key, 0)
            if size > _MOST_RESULT_BYTES:
                self._put(point, Failure(point, f"its result has {size / 1e6:.0f} MB; the limit is 64 MiB"))
                return
            payload = await asyncio.wait_for(self._client.gather(future), _GATHER_S)
            self._put(point, Result(point, payload))
        except asyncio.CancelledError:
            raise
        except Exception as error:  # Dask has many; a result that got lost is measured or fetched again.
            self._put(point, Lost(point, f"its result was lost ({type(error).__name__})"))
        finally:
            self._at.pop(point, None)
            with contextlib.suppress(Exception):
                future.release()

    def _put(self, point: str, event: Event) -> None:
        self._events.put((self._tokens.get(point, ""), event))

    def _ask(self, point: str, function: Callable[..., Any]) -> dict[str, Any]:
        """Runs a function on all workers of a point, also while they measure."""
        addresses = [address for address, names in list(self._workers.items()) if point in names]
        try:
            answer = self._call(self._client.run(function, workers=addresses, on_error="return"), _ASK_S)
        except (OSError, TimeoutError, ValueError) as error:
            raise PointError(f"its worker did not answer ({printable(str(error) or type(error).__name__, 200)})") from error
        return dict(answer)

    def _call(self, coroutine: Coroutine[Any, Any, T], timeout: float) -> T:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout)
        except (concurrent.futures.TimeoutError, asyncio.TimeoutError) as error:  # Names of their own before Python 3.11.
            raise TimeoutError(f"no answer within {timeout:.0f} s") from error
        finally:
            future.cancel()
