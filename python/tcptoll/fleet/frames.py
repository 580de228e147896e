"""Reads what the script of `remote.py` prints. The other end is not trusted, so everything has a limit."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterator
from typing import IO, Any

from .plan import MOST_RECORD_BYTES, PROTOCOL, PointError
from .task import why

#: A login shell may print this much before.
_MOST_NOISE = 64 << 10
_MOST_LINE = 4096
_MARK = b"\x02"
_LINE = re.compile(rb"(found|trials) ([0-9]{1,9})|result ([0-9]{1,3}) ([0-9]{1,9}) ([0-9]{1,9}) ([0-9]{1,4}) ([0-9]{1,12})")


def read_frames(file: IO[bytes]) -> Iterator[tuple[str, Any]]:
    """`found` and `trials` with a number, and at last `result` with the same object as `task.py` returns."""
    noise = 0
    while line := file.readline(_MOST_LINE):
        _, marked, text = line.rpartition(_MARK)
        if not marked:
            noise += len(line)
            if noise > _MOST_NOISE:
                raise PointError(f"its shell printed more than {_MOST_NOISE >> 10} KiB instead of an answer")
            continue
        parts = _LINE.fullmatch(text.rstrip(b"\n"))
        if parts is None:
            raise PointError("its answer is not what the script prints")
        if parts[1]:
            yield parts[1].decode(), int(parts[2])
            continue
        status, before, after, errors, size = (int(parts[n]) for n in range(3, 8))
        yield "result", _result(file, status, before, after, errors, size)
        return


def _result(file: IO[bytes], status: int, before: int, after: int, errors: int, size: int) -> dict[str, Any]:
    if size > MOST_RECORD_BYTES:
        raise PointError(f"its record has {size / 1e6:.0f} MB; the limit is {MOST_RECORD_BYTES >> 20} MiB")
    said = _exactly(file, errors).decode("utf-8", "replace")
    record = _exactly(file, size)
    return {
        "protocol": PROTOCOL, "status": status, "error": "" if status in (0, 1) else why(status, said),
        "record": zlib.compress(record, 1) if record else None, "bytes": size,
        "sha256": hashlib.sha256(record).hexdigest(), "measured": max(0, after - before), "found": min(before, after),
    }  # fmt: skip


def _exactly(file: IO[bytes], size: int) -> bytes:
    content = file.read(size)
    if len(content) < size:
        raise ConnectionError("the connection ended before its record was complete")
    return content
