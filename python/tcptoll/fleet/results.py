"""Checks what a worker returned. A worker is not trusted: it can only fail its own point."""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass
from typing import Any

from .._errors import TcptollError, printable
from .plan import MOST_RECORD_BYTES, PROTOCOL, Plan


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


def _lines(record: bytes, plan: Plan, point: str) -> int:
    """Number of trials; the header must be that of the plan, and the last line a summary."""
    if not record.endswith(b"\n"):
        raise Refusal("the last line of its record is cut off")
    lines = record.split(b"\n")[:-1]
    header = _object(lines[0])
    study = header.get("study")
    study = study if isinstance(study, dict) else {}
    experiment = header.get("experiment")
    asked: list[tuple[str, object, object]] = [
        ("record_version", header.get("record_version"), plan.study.record_version),
        ("version", header.get("tcptoll_version"), plan.version),
        ("vantage", header.get("vantage"), point),
        ("seed", header.get("seed"), plan.seed_of(point)),
        ("experiment", experiment, plan.study.experiment),
        ("study", study.get("name", plan.study.name), plan.study.name),
        ("arms", _arms(study, plan), list(plan.study.arms)),
    ]
    if header.get("line") != "header":
        raise Refusal("its record does not begin with a header")
    for what, found, wanted in asked:
        if found != wanted or type(found) is not type(wanted):
            shown = [value if isinstance(value, str) else repr(value) for value in (found, wanted)]
            raise Refusal(f"its record says {what} {printable(shown[0], 80)}, but {printable(shown[1], 80)} was asked")
    if _object(lines[-1]).get("line") != "summary":
        raise Refusal("its record has no summary at the end: the run did not finish")
    return sum(line.startswith(b'{"line":"trial"') for line in lines)


def _arms(study: dict[str, Any], plan: Plan) -> list[object]:
    """Names of the arms in a header, if it lists them; arms made of factors are not listed."""
    arms = study.get("arm")
    if study.get("factors") or not isinstance(arms, list) or not arms:
        return list(plan.study.arms)
    return [arm.get("name") if isinstance(arm, dict) else None for arm in arms]


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Refusal("a line of its record is not JSON") from error
    if not isinstance(value, dict):
        raise Refusal("a line of its record is not an object")
    return value
