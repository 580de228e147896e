"""Tables of what follows from the trials: arms, comparisons and warnings, as the program concludes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ._lines import Run
from ._observed import FOLLOWED
from ._table import Kind, Table
from ._trial import text_of

#: A record and what the program concludes from it.
Concluded = tuple[Run, dict[str, Any]]


def arms(runs: Sequence[Concluded]) -> Table:
    """One row an arm and metric, over all rounds that count."""
    names = {name for _, summary in runs for arm in summary["arms"] for name in _factors(arm)}
    factors: dict[str, Kind] = {f"factor_{name}": "text" for name in sorted(names)}
    table = Table(
        {
            "record": "text",
            "vantage": "text",
            "experiment": "text",
            "arm": "text",
            **factors,
            "metric": "text",
            "unit": "text",
            "value": "float",
            "ci95_low": "float",
            "ci95_high": "float",
            "median": "float",
            "n": "int",
            "attempts": "int",
            "ok": "int",
            "errors": "int",
        }
    )
    for run, summary in runs:
        for arm in summary["arms"]:
            levels = _factors(arm)
            of_factors = (levels.get(name.removeprefix("factor_")) for name in factors)
            begins = (run.path, run.vantage, summary["experiment"], arm["name"], *of_factors)
            counts = (arm["attempts"], arm["ok"], sum(arm["errors"].values()))
            for name, metric in _metrics(arm):
                interval = metric.get("ci95") or (None, None)
                figures = (name, metric["unit"], float(metric["value"]), *interval, metric.get("median"), metric["n"])
                table.add((*begins, *figures, *counts))
    return table


def comparisons(runs: Sequence[Concluded]) -> Table:
    """One row a comparison of two arms."""
    table = Table(
        {
            "record": "text",
            "vantage": "text",
            "metric": "text",
            "a": "text",
            "b": "text",
            "per": "text",
            "ratio": "float",
            "ratio_low": "float",
            "ratio_high": "float",
            "difference": "float",
            "difference_low": "float",
            "difference_high": "float",
            "unit": "text",
            "margin": "float",
            "rounds": "int",
            "verdict": "text",
        }
    )
    for run, summary in runs:
        for one in summary["comparisons"]:
            per = ", ".join(f"{name} {text_of(level)}" for name, level in one.get("per", {}).items()) or None
            difference = one.get("difference") or {}
            table.add(
                (
                    *(run.path, run.vantage, one["metric"], one["a"], one["b"], per),
                    *(one.get("ratio"), *(one.get("ci95") or (None, None))),
                    *(difference.get("value"), *(difference.get("ci95") or (None, None)), difference.get("unit")),
                    *(one["margin"], one["rounds"], one["verdict"]),
                )
            )
    return table


def warnings(runs: Iterable[Concluded]) -> Table:
    """One row a reason to trust the run less; without an arm it concerns the whole run."""
    table = Table({"record": "text", "vantage": "text", "id": "text", "arm": "text", "text": "text"})
    for run, summary in runs:
        for one in summary["warnings"]:
            table.add((run.path, run.vantage, one["id"], one.get("arm"), one["text"]))
    return table


def _metrics(arm: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The metrics of an arm. Of several rounds the program adds p50 and p99; of one they are added here."""
    yield from arm["metrics"].items()
    if arm.get("rounds"):
        return
    for histogram, figures in arm["histograms"].items():
        for figure in FOLLOWED:
            name = f"{histogram}_{figure}"
            if figures.get(figure) is not None and name not in arm["metrics"]:
                unit = histogram.rpartition("_")[2]
                yield name, {"value": figures[figure], "unit": unit, "n": figures["count"]}


def _factors(arm: dict[str, Any]) -> dict[str, str]:
    return {name.replace("-", "_"): text_of(level) for name, level in arm["factors"].items()}
