"""Checks what a worker returned. A worker is not trusted: it can only fail its own point."""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass
from typing import Any

from .._errors import TcptollError, printable
from .plan import MOST_RECORD_BYTES, PROTOCOL, Plan, canonical


class Refusal(TcptollError):
    """A result that is not taken. The message says why."""


@dataclass(frozen=True)
class Checked:
    """A record of a point that belongs to the plan."""

    record: bytes
    status: int
    trials: int
    measured: int


def check(payload: object, plan: Plan, point: str) -> Checked:
    """The record in a worker's result. Raises Refusal with the reason, also the worker's own."""
    if not isinstance(payload, dict):
        raise Refusal(f"its result is {printable(type(payload).__name__, 40)}, not an object")
    protocol = payload.get("protocol")
    if protocol != PROTOCOL:
        raise Refusal(f"its result has protocol {printable(repr(protocol), 40)}, but {PROTOCOL} was asked")
    status, measured = _count(payload, "status"), _count(payload, "measured")
    if status not in (0, 1):
        error = payload.get("error")
        said = printable(error, 2000) if isinstance(error, str) and error else ""
        raise Refusal(said or f"tcptoll ended there with exit status {status}")
    record = _record(payload)
    trials = _lines(record, plan, point)
    if measured > trials:
        raise Refusal(f"it reports {measured} measured trials, but its record has {trials}")
    return Checked(record, status, trials, measured)


def _count(payload: dict[Any, Any], name: str) -> int:
    value = payload.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise Refusal(f"its result has no valid {name!r}")
    return value


def _record(payload: dict[Any, Any]) -> bytes:
    """The record's bytes, decompressed up to the limit only."""
    packed, digest = payload.get("record"), payload.get("sha256")
    if not isinstance(packed, bytes) or not isinstance(digest, str):
        raise Refusal("its result has no record")
    unpacking = zlib.decompressobj()
    try:
        record = unpacking.decompress(packed, MOST_RECORD_BYTES + 1)
    except zlib.error as error:
        raise Refusal(f"its record cannot be decompressed: {error}") from error
    if len(record) > MOST_RECORD_BYTES:
        raise Refusal(f"its record has more than {MOST_RECORD_BYTES >> 20} MiB")
    if not unpacking.eof or unpacking.unused_data:
        raise Refusal("its record is cut off, or bytes follow it")
    if hashlib.sha256(record).hexdigest() != digest:
        raise Refusal("its record was damaged on the way: the sha256 sum differs")
    return record


#: A header is a study, a command and a machine.
_MOST_HEADER_BYTES = 4 << 20
_SUMMARY = b'{"line":"summary"'
_TRIAL = b'\n{"line":"trial"'


def _lines(record: bytes, plan: Plan, point: str) -> int:
    """Number of trials; the header must be that of the plan, and the last line a summary.

    Only the header is parsed: 64 MiB of JSON may take many times that in memory.
    """
    if not record.endswith(b"\n"):
        raise Refusal("the last line of its record is cut off")
    end = record.find(b"\n")
    if end > _MOST_HEADER_BYTES:
        raise Refusal(f"the header of its record has more than {_MOST_HEADER_BYTES >> 20} MiB")
    header = _object(record[:end])
    asked: list[tuple[str, object, object]] = [
        ("record_version", header.get("record_version"), plan.study.record_version),
        ("version", header.get("tcptoll_version"), plan.version),
        ("vantage", header.get("vantage"), point),
        ("seed", header.get("seed"), plan.seed_of(point)),
        ("experiment", header.get("experiment"), plan.study.experiment),
    ]
    if header.get("line") != "header":
        raise Refusal("its record does not begin with a header")
    for what, found, wanted in asked:
        if found != wanted or type(found) is not type(wanted):
            shown = [value if isinstance(value, str) else repr(value) for value in (found, wanted)]
            raise Refusal(f"its record says {what} {printable(shown[0], 80)}, but {printable(shown[1], 80)} was asked")
    if not _is_asked(header.get("study"), plan, point):
        raise Refusal("its record is of another study than was asked: options, arms, comparisons or margin differ")
    if not record.startswith(_SUMMARY, record.rfind(b"\n", 0, -1) + 1):
        raise Refusal("its record has no summary at the end: the run did not finish")
    return record.count(_TRIAL)


def _is_asked(study: object, plan: Plan, point: str) -> bool:
    """Whether the study is the one that was asked for, to the last option."""
    if not isinstance(study, dict):
        return False
    if plan.split is not None:
        settings = study.get("settings")
        if not isinstance(settings, dict) or settings.get("share") != plan.share_of(point):
            return False
        study = {**study, "settings": {name: value for name, value in settings.items() if name != "share"}}
    try:
        return canonical(study) == plan.study.document
    except ValueError:
        return False


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Refusal("a line of its record is not JSON") from error
    if not isinstance(value, dict):
        raise Refusal("a line of its record is not an object")
    return value
