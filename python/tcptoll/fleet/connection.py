"""A connection to a Dask scheduler, in a thread of its own: which workers there are, and when one goes away."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import distributed

from .._errors import TcptollError, printable
from .worker import RESOURCE

T = TypeVar("T")
_CONNECT_S = 15.0
#: Events may be missed; so the list of workers is read now and then.
_LOOK_S = 5.0


class Connection:
    """Calls `left` with the address of a worker that goes away, and `gone` when the scheduler does."""

    def __init__(self, address: str, security: Any, left: Callable[[str], None], gone: Callable[[], None]) -> None:
        self._left, self._gone = left, gone
        self._workers: dict[str, list[str]] = {}
        self._topics = ["all"]
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="tcptoll-dask", daemon=True).start()
        try:
            self.client: Any = self.call(lambda: self._connect(address, security), _CONNECT_S + 5)
        except Exception as error:  # A scheduler with other TLS options shows as any of many.
            raise TcptollError(
                f"--scheduler {printable(address)}: no connection ({printable(str(error) or type(error).__name__, 300)}). "
                "Is it running, and are the --tls options the same on both sides?"
            ) from error

    def points(self) -> list[str]:
        """Names of vantage points, as the workers give them."""
        return list(dict.fromkeys(name for names in list(self._workers.values()) for name in names))

    def workers_of(self, point: str) -> list[str]:
        """Addresses of the workers of a point."""
        return [address for address, names in list(self._workers.items()) if point in names]

    def call(self, function: Callable[[], Awaitable[T]], timeout: float) -> T:
        """Runs a coroutine in the thread of the connection. Raises TimeoutError."""

        async def called() -> T:
            return await function()

        future = asyncio.run_coroutine_threadsafe(called(), self.loop)
        try:
            return future.result(timeout)
        except (concurrent.futures.TimeoutError, asyncio.TimeoutError) as error:  # Names of their own before Python 3.11.
            raise TimeoutError(f"no answer within {timeout:.0f} s") from error
        finally:
            future.cancel()

    def subscribe(self, topic: str, handler: Callable[[Any], None]) -> None:
        """Passes on what workers log under a topic."""
        self._topics.append(topic)

        async def subscribe() -> None:
            self.client.subscribe_topic(topic, handler)

        self.call(subscribe, _CONNECT_S)

    def close(self, timeout: float) -> None:
        """In at most `timeout` seconds, also if the scheduler does not answer: the thread ends with the process."""
        with contextlib.suppress(Exception):
            self.call(self._close, timeout)
        self.client.status = "closed"

    async def _connect(self, address: str, security: Any) -> Any:
        client: Any = distributed.Client(
            address, asynchronous=True, security=security, timeout=_CONNECT_S, set_as_default=False, direct_to_workers=False
        )
        try:
            await client
            await self._look(client)
        except BaseException:
            client.status = "closed"  # Otherwise it would wait for half a minute when it is deleted.
            raise
        client.subscribe_topic("all", self._membership)
        self._watch = self.loop.create_task(self._guard(client))
        return client

    async def _close(self) -> None:
        self._watch.cancel()
        for topic in self._topics:
            self.client.unsubscribe_topic(topic)
        await self.client.close()

    async def _look(self, client: Any) -> None:
        """Reads the list of all workers; `scheduler_info` has only a few of them."""
        try:
            identity = await client.scheduler.identity(n_workers=-1)
        except TypeError:  # Older versions list all.
            identity = await client.scheduler.identity()
        before = set(self._workers)
        self._workers = {str(address): _points(worker) for address, worker in identity["workers"].items()}
        for address in before - set(self._workers):
            self._left(address)

    async def _guard(self, client: Any) -> None:
        looked = time.monotonic()
        while client.status == "running":
            await asyncio.sleep(0.2)
            if time.monotonic() - looked > _LOOK_S:
                with contextlib.suppress(OSError, asyncio.TimeoutError):
                    await asyncio.wait_for(self._look(client), _LOOK_S)
                looked = time.monotonic()
        self._workers = {}
        self._gone()

    async def _membership(self, event: Any) -> None:
        _, message = event
        action, address = message.get("action"), message.get("worker")
        if action == "remove-worker" and self._workers.pop(address, None) is not None:
            self._left(address)
        elif action == "add-worker":
            with contextlib.suppress(OSError, AttributeError):
                await self._look(self.client)


def _points(worker: Any) -> list[str]:
    """Names in the resources of a worker. A task needs 1 of a resource, so less is no offer."""
    resources = worker.get("resources", {})
    return [
        str(name).removeprefix(RESOURCE)
        for name, amount in resources.items()
        if str(name).startswith(RESOURCE) and isinstance(amount, int | float) and amount >= 1
    ]
