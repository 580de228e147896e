"""Tables of what was observed: trials, metrics and series, straight from the lines of records.

Nothing is averaged here. A trial that does not count is left out unless it is asked for, and `why`
says why it does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ._lines import Run
from ._rounds import reasons
from ._table import Kind, Table
from ._trial import Trial

#: The figures of a distribution that are followed over rounds, as `tcptoll report` does.
FOLLOWED = ("p50", "p99")


def trials(runs: Sequence[Run], excluded: bool) -> Table:
    """One row a trial."""
    factors = factors_of(runs)
    table = Table(
        {
            "record": "text",
            "vantage": "text",
            "experiment": "text",
            "arm": "text",
            **factors,
            "round": "int",
            "order": "int",
            "attempt": "int",
            "began_s": "float",
            "took_s": "float",
            "elapsed_s": "float",
            "attempts": "int",
            "ok": "int",
            "errors": "int",
            "valid": "bool",
            "why": "text",
        }
    )
    for run, trial, why in _rows(runs, excluded):
        beginning = (run.path, run.vantage, run.header["experiment"], trial.arm, *_levels(trial, factors))
        place = (trial.round, trial.order, trial.attempt, trial.began_s, trial.took_s, trial.elapsed_s)
        table.add((*beginning, *place, trial.attempts, trial.ok, trial.errors, why is None, why))
    return table


def metrics(runs: Sequence[Run], excluded: bool) -> Table:
    """One row a trial and metric; p50 and p99 of each distribution are metrics too."""
    factors = factors_of(runs)
    names: dict[str, Kind] = {
        "record": "text", "vantage": "text", "arm": "text", **factors, "round": "int", "order": "int", "attempt": "int",
    }  # fmt: skip
    of_metric: dict[str, Kind] = {"metric": "text", "unit": "text", "value": "float", "n": "int"}
    table = Table({**names, **of_metric, "valid": "bool", "why": "text"})
    of_trial = (*names, "valid", "why")
    columns = [table.columns[name] for name in of_metric]
    for run, trial, why in _rows(runs, excluded):
        figures = list(figures_of(trial))
        for column, values in zip(columns, zip(*figures, strict=True), strict=False):
            column.extend(values)
        place = (trial.round, trial.order, trial.attempt)
        values = (run.path, run.vantage, trial.arm, *_levels(trial, factors), *place, why is None, why)
        table.repeat(of_trial, values, len(figures))
    return table


def series(runs: Sequence[Run], excluded: bool) -> Table:
    """One row a point of a time series."""
    factors = factors_of(runs)
    names: dict[str, Kind] = {
        "record": "text", "vantage": "text", "arm": "text", **factors, "round": "int", "series": "text",
    }  # fmt: skip
    points: dict[str, Kind] = {"seconds": "float", "min": "float", "mean": "float", "max": "float"}
    table = Table({**names, **points, "valid": "bool", "why": "text"})
    of_trial = (*names, "valid", "why")
    for run, trial, why in _rows(runs, excluded):
        for name, flat in trial.series.items():
            for at, column in enumerate(points):
                table.columns[column].extend(flat[at::4])
            place = (run.path, run.vantage, trial.arm, *_levels(trial, factors), trial.round, name)
            table.repeat(of_trial, (*place, why is None, why), len(flat) // 4)
    return table


def factors_of(runs: Iterable[Run]) -> dict[str, Kind]:
    """The column of each factor of any arm, in order of appearance."""
    columns: dict[str, Kind] = {}
    for run in runs:
        for trial in run.trials:
            for name in trial.factors:
                columns[f"factor_{name}"] = "text"
    return columns


def figures_of(trial: Trial) -> Iterator[tuple[str, str, float, int]]:
    """Name, unit, value and number of observations of each metric of a trial."""
    for name, metric in trial.metrics.items():
        yield name, metric.unit, metric.value, metric.n
    for histogram, kept in trial.histograms.items():
        for figure in FOLLOWED:
            name = f"{histogram}_{figure}"
            if figure in kept and name not in trial.metrics:
                yield name, histogram.rpartition("_")[2], kept[figure], kept["count"]


def _rows(runs: Iterable[Run], excluded: bool) -> Iterator[tuple[Run, Trial, str | None]]:
    for run in runs:
        for trial, why in zip(run.trials, reasons(run.trials), strict=True):
            if excluded or why is None:
                yield run, trial, why


def _levels(trial: Trial, factors: Iterable[str]) -> Iterator[str | None]:
    return (trial.factors.get(name.removeprefix("factor_")) for name in factors)
