"""One trial of a record: what the tables need of it, checked before anybody computes with it.

A record may be damaged, or be written by somebody who wishes its reader ill. So every value has its
type and range checked here, and nothing after this file checks again. Fields that are not listed
below are ignored, also those of later versions.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any, NamedTuple

#: A round number from here on is impossible; the program's own limit.
ROUNDS_MAX = 1_000
#: More factors than any experiment has options: each becomes a column.
FACTORS_MAX = 100
_COUNT_MAX = 1 << 63
_SUMMARY_FIGURES = ("min", "mean", "p50", "p99", "max")


class Wrong(ValueError):
    """A value is not what the record format says; the message names it."""


class Metric(NamedTuple):
    """A single figure of a trial."""

    value: float
    unit: str
    n: int


@dataclass(slots=True)
class Trial:
    """One arm in one round, or a repetition of it."""

    arm: str
    factors: dict[str, str]
    round: int
    order: int
    attempt: int
    began_s: float
    took_s: float
    elapsed_s: float
    attempts: int
    ok: int
    errors: int
    #: Why it does not count by itself; None: it counts, unless a later one of its round does.
    left_out: str | None
    metrics: dict[str, Metric]
    #: Figures and the encoded distribution, as in the record.
    histograms: dict[str, dict[str, Any]]
    #: Four numbers a point: seconds, least, mean, greatest.
    series: dict[str, array[float]]


def read(line: Mapping[str, Any]) -> Trial:
    """The trial of a line. Raises Wrong if a value has the wrong type or is impossible."""
    arm = _object(line, "arm")
    where = "arm."
    round_ = _count(line, "round")
    if round_ >= ROUNDS_MAX:
        raise Wrong(f"`round` is {round_}, and a run has at most {ROUNDS_MAX} rounds")
    errors = _object(arm, "errors", where)
    return Trial(
        arm=intern(_text(arm, "name", where)),
        factors=_factors(_object(arm, "factors", where)),
        round=round_,
        order=_count(line, "order", default=0),
        attempt=_count(line, "attempt", default=0),
        began_s=_seconds(line, "began_s"),
        took_s=_seconds(line, "took_s"),
        elapsed_s=_number(arm, "elapsed_s", where),
        attempts=_count(arm, "attempts", where),
        ok=_count(arm, "ok", where),
        errors=_limited(sum(_count(errors, name, "arm.errors.") for name in errors), "arm.errors"),
        left_out=_left_out(line, arm),
        metrics=_metrics(_object(arm, "metrics", where)),
        histograms=_histograms(_object(arm, "histograms", where)),
        series=_series(_object(arm, "series", where, default={})),
    )


def _left_out(line: Mapping[str, Any], arm: Mapping[str, Any]) -> str | None:
    for holder, name, where in ((line, "invalid", ""), (arm, "failure", "arm.")):
        reason = holder.get(name)
        if reason is not None:
            return intern(_text(holder, name, where))
    partial = arm.get("partial", False)
    if type(partial) is not bool:
        raise Wrong("`arm.partial` is neither true nor false")
    return "stopped before it was complete" if partial else None


def _factors(factors: Mapping[str, Any]) -> dict[str, str]:
    if len(factors) > FACTORS_MAX:
        raise Wrong(f"`arm.factors` has {len(factors)} factors, and no experiment has so many options")
    levels = {}
    for name, level in factors.items():
        levels[intern(name.replace("-", "_"))] = intern(text_of(level))
    return levels


def text_of(level: Any) -> str:
    """A level of a factor as it was typed: a list of levels that go together is `a,b`."""
    if isinstance(level, str):
        return level
    if isinstance(level, list) and all(isinstance(one, str) for one in level):
        return ",".join(level)
    return json.dumps(level)


def _metrics(metrics: Mapping[str, Any]) -> dict[str, Metric]:
    read: dict[str, Metric] = {}
    for name in metrics:
        one = _object(metrics, name, "arm.metrics.")
        where = f"arm.metrics.{name}."
        unit = intern(_text(one, "unit", where))
        read[intern(name)] = Metric(_number(one, "value", where), unit, _count(one, "n", where))
    return read


def _histograms(histograms: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    read: dict[str, dict[str, Any]] = {}
    for name in histograms:
        one = _object(histograms, name, "arm.histograms.")
        where = f"arm.histograms.{name}."
        kept: dict[str, Any] = {"count": _count(one, "count", where)}
        for figure in _SUMMARY_FIGURES:
            if one.get(figure) is not None:
                kept[figure] = _number(one, figure, where)
        if one.get("hdr") is not None:
            kept["hdr"] = _text(one, "hdr", where)
        read[intern(name)] = kept
    return read


def _series(series: Mapping[str, Any]) -> dict[str, array[float]]:
    read: dict[str, array[float]] = {}
    for name in series:
        points = _object(series, name, "arm.series.").get("points")
        flat = array("d")
        if not isinstance(points, list):
            raise Wrong(f"`arm.series.{name}.points` is not a list")
        for point in points:
            if not isinstance(point, list) or len(point) != 4 or not all(map(_is_number, point)):
                raise Wrong(f"`arm.series.{name}.points` has a point that is not four numbers")
            flat.extend(point)
        read[intern(name)] = flat
    return read


def _object(
    holder: Mapping[str, Any], name: str, where: str = "", default: dict[str, Any] | None = None
) -> dict[str, Any]:
    value = holder.get(name, default)
    if not isinstance(value, dict):
        raise Wrong(f"`{where}{name}` {'is missing' if value is None else 'is not an object'}")
    return value


def _text(holder: Mapping[str, Any], name: str, where: str = "") -> str:
    value = holder.get(name)
    if not isinstance(value, str):
        raise Wrong(f"`{where}{name}` {'is missing' if value is None else 'is not text'}")
    return value


def _count(holder: Mapping[str, Any], name: str, where: str = "", default: int | None = None) -> int:
    value = holder.get(name, default)
    if type(value) is not int or value < 0:
        raise Wrong(f"`{where}{name}` {'is missing' if value is None else 'is not a whole number from 0'}")
    return _limited(value, where + name)


def _limited(count: int, name: str) -> int:
    if count >= _COUNT_MAX:
        raise Wrong(f"`{name}` is larger than any count of a run")
    return count


def _number(holder: Mapping[str, Any], name: str, where: str = "") -> float:
    value = holder.get(name)
    if not _is_number(value):
        raise Wrong(f"`{where}{name}` {'is missing' if value is None else 'is not a finite number'}")
    return float(value)  # type: ignore[arg-type]


def _is_number(value: object) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    # An integer of a thousand digits is none of ours, and no float.
    return type(value) is int and abs(value) < 1 << 1000


def _seconds(line: Mapping[str, Any], name: str) -> float:
    value = 0.0 if line.get(name) is None else _number(line, name)
    if not 0 <= value < 1e9:
        raise Wrong(f"`{name}` is {value:g} s, which no run takes")
    return value
