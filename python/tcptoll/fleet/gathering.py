"""Results of many points in few messages: each question to the scheduler costs CPU time on both sides."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

#: Results that are there within this time are asked for together.
_TOGETHER_S = 0.005
#: And not more than this at once, so that the results of a large fleet need not fit into memory together.
_MOST_BYTES = 256 << 20
_GATHER_S = 60.0


class TooLarge(Exception):
    """A result has more bytes than allowed; nothing was transferred."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size} bytes")
        self.size = size


class Gathering:
    """Fetches results. Belongs to the event loop of the client."""

    def __init__(self, client: Any, most_bytes: int) -> None:
        self._client, self._most_bytes = client, most_bytes
        self._asked: list[tuple[Any, asyncio.Future[Any]]] = []
        self._task: asyncio.Task[None] | None = None

    async def result(self, future: Any) -> Any:
        """The result of a finished future. Raises TooLarge, and what Dask raises if the result was lost."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked.append((future, answer))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._fetch())
        return await answer

    async def _fetch(self) -> None:
        try:
            while self._asked:
                await asyncio.sleep(_TOGETHER_S)
                asked, self._asked = self._asked, []
                try:
                    await self._together(asked)
                except Exception as error:
                    for _, answer in asked:
                        if not answer.done():
                            answer.set_exception(error)
        finally:
            self._task = None

    async def _together(self, asked: list[tuple[Any, asyncio.Future[Any]]]) -> None:
        # Asked of the scheduler, before anything is transferred.
        sizes = await self._client.nbytes([future.key for future, _ in asked], summary=False)
        batch: list[tuple[Any, asyncio.Future[Any]]] = []
        total = 0
        for future, answer in asked:
            size = sizes.get(future.key, 0)
            if size > self._most_bytes:
                if not answer.done():
                    answer.set_exception(TooLarge(size))
                continue
            if batch and total + size > _MOST_BYTES:
                await self._transfer(batch)
                batch, total = [], 0
            batch.append((future, answer))
            total += size
        await self._transfer(batch)

    async def _transfer(self, batch: list[tuple[Any, asyncio.Future[Any]]]) -> None:
        """One that was lost must not cost the others theirs, so then each is asked for alone."""
        batch = [(future, answer) for future, answer in batch if not answer.done()]
        values: list[Any] | None = None
        if len(batch) > 1:
            with contextlib.suppress(Exception):
                values = list(await asyncio.wait_for(self._client.gather([future for future, _ in batch]), _GATHER_S))
        for at, (future, answer) in enumerate(batch):
            try:
                value = values[at] if values is not None else await asyncio.wait_for(self._client.gather(future), _GATHER_S)
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(value)
