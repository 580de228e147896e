"""A record, or many, as tables, histograms and a page."""

from __future__ import annotations

import glob
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from . import _binary, _concluded, _lines, _notebook, _observed
from ._concluded import Concluded
from ._errors import BinaryNotFoundError, RecordError, TcptollError, name_of, printable
from ._hdr import HdrError
from ._histogram import Histogram, merged
from ._lines import Run
from ._rounds import reasons
from ._table import Engine, Table, engine_of

#: A path as text or as an object of pathlib.
PathLike: TypeAlias = "str | os.PathLike[str]"


class Skipped(NamedTuple):
    """A file that `Records` left out, and why."""

    path: str
    reason: str


class _Tables(ABC):
    """What a record and several records have in common.

    Every table takes `engine="polars"`, `"pandas"` or `"rows"` (a list of dicts, without any dependency).
    Without it, polars is used if it is installed, otherwise pandas. Trials that do not count are left out
    unless `excluded=True`; the column `why` says why they do not.
    """

    _runs: list[Run]

    @abstractmethod
    def _concluded(self) -> list[Concluded]: ...

    def trials(self, *, excluded: bool = False, engine: Engine | None = None) -> Any:
        """One row per trial: its arm, factors, round, order of running, counts and times."""
        return _observed.trials(self._runs, excluded).frame(engine)

    def metrics(self, *, excluded: bool = False, engine: Engine | None = None) -> Any:
        """One row per trial and metric, with unit and number of observations.

        p50 and p99 of each distribution are metrics too: `connect_us_p99`.
        """
        return _observed.metrics(self._runs, excluded).frame(engine)

    def series(self, *, excluded: bool = False, engine: Engine | None = None) -> Any:
        """One row per point of a time series: least, mean and greatest value from `seconds` on.

        A run keeps the series of its first round only.
        """
        return _observed.series(self._runs, excluded).frame(engine)

    def arms(self, *, engine: Engine | None = None) -> Any:
        """One row per arm and metric: mean over the rounds that count, 95 % interval, median.

        The program computes them (`tcptoll report`), so it has to be installed.
        """
        return _concluded.arms(self._concluded()).frame(engine)

    def comparisons(self, *, engine: Engine | None = None) -> Any:
        """One row per comparison: ratio a / b with its interval, difference, verdict. Of the program, as `arms`."""
        return _concluded.comparisons(self._concluded()).frame(engine)

    def warnings(self, *, engine: Engine | None = None) -> Any:
        """One row per reason to trust a run less; `tcptoll explain ID` explains it. Of the program, as `arms`."""
        return _concluded.warnings(self._concluded()).frame(engine)

    def histogram(self, arm: str, name: str, *, excluded: bool = False) -> Histogram:
        """The distribution of all values of an arm, like `histogram("link metro", "connect_us")`.

        Merged exactly over the rounds that count, and over records. Raises KeyError, with the names that
        exist, if no trial has it; RecordError if one is damaged.
        """
        parts: list[Histogram] = []
        others: set[str] = set()
        for run in self._runs:
            for trial, why in zip(run.trials, reasons(run.trials), strict=True):
                if trial.arm != arm:
                    others.add(f"arm {trial.arm!r}")
                elif why is None or excluded:
                    others.update(f"{other!r}" for other in trial.histograms)
                    if name in trial.histograms:
                        parts.append(_decoded(run.path, trial.histograms[name], name))
        if not parts:
            known = ", ".join(sorted(others)[:20]) or "nothing"
            raise KeyError(f"no trial that counts has {name!r} of arm {arm!r}; there is {known}")
        return merged(parts)

    def to_parquet(
        self, path: PathLike, table: str = "metrics", *, excluded: bool = False, engine: Engine | None = None
    ) -> None:
        """Writes a table (`metrics` by default) as a Parquet file. With pandas this needs pyarrow."""
        tables: dict[str, Callable[[], Table]] = {
            "trials": lambda: _observed.trials(self._runs, excluded),
            "metrics": lambda: _observed.metrics(self._runs, excluded),
            "series": lambda: _observed.series(self._runs, excluded),
            "arms": lambda: _concluded.arms(self._concluded()),
            "comparisons": lambda: _concluded.comparisons(self._concluded()),
            "warnings": lambda: _concluded.warnings(self._concluded()),
        }
        if table not in tables:
            raise ValueError(f"table={table!r}: write one of {', '.join(tables)}")
        if engine == "rows":
            raise ValueError('engine="rows" cannot write Parquet: use "polars" or "pandas"')
        chosen = engine_of(engine)
        frame = tables[table]().frame(chosen)
        if chosen == "polars":
            frame.write_parquet(os.fspath(path))
        else:
            frame.to_parquet(os.fspath(path), index=False)


class Record(_Tables):
    """One record: the file that a run of tcptoll writes.

    Raises RecordError if the file is damaged or is not a record. A last line that was cut, because the run
    was killed while writing it, is left out; `torn` is then true.
    """

    #: The exit status of the run that `tcptoll.run` made; None: the record was read from a file.
    exit_status: int | None = None

    def __init__(self, path: PathLike) -> None:
        """Reads the whole file at once."""
        self.path = Path(path)
        self._runs = [_lines.read(path)]
        self._summary: tuple[tuple[int, int], dict[str, Any]] | None = None

    @property
    def header(self) -> dict[str, Any]:
        """What was asked, and on what machine: `study`, `command`, `started_at`, `seed`, `passport` and more."""
        return self._runs[0].header

    @property
    def experiment(self) -> str:
        """The experiment's name: `connect`."""
        return str(self.header["experiment"])

    @property
    def torn(self) -> bool:
        """Whether the last line was cut, and left out."""
        return self._runs[0].torn

    def summary(self) -> dict[str, Any]:
        """Everything that the program concludes: the object of `tcptoll report --format json`."""
        status = self.path.stat()
        stamp = (status.st_mtime_ns, status.st_size)
        if self._summary is None or self._summary[0] != stamp:
            self._summary = (stamp, _binary.summary(self.path))
        return self._summary[1]

    def _concluded(self) -> list[Concluded]:
        return [(self._runs[0], self.summary())]

    def __repr__(self) -> str:
        run = self._runs[0]
        arms = len({trial.arm for trial in run.trials})
        return f"<Record {printable(run.path)}: {self.experiment}, {len(run.trials)} trials of {arms} arms>"

    def _repr_html_(self) -> str:
        return _notebook.frame_of([self.path])


class Records(_Tables):
    """Several records: a folder, a pattern like `"runs/*.jsonl"`, or a list of paths.

    A file that is damaged or is not a record is left out; `skipped` names it and says why.
    """

    def __init__(self, source: PathLike | Iterable[PathLike]) -> None:
        """Reads all files. Raises FileNotFoundError if the folder has no `*.jsonl`, or nothing matches."""
        self.skipped: list[Skipped] = []
        self._records: list[Record] = []
        for path in _paths(source):
            try:
                self._records.append(Record(path))
            except (RecordError, OSError) as error:
                self._skip(path, error)
        self._runs = [run for record in self._records for run in record._runs]

    def _skip(self, path: PathLike, error: Exception) -> None:
        skipped = Skipped(name_of(path), str(error))
        if skipped not in self.skipped:
            self.skipped.append(skipped)

    def _concluded(self) -> list[Concluded]:
        concluded: list[Concluded] = []
        for record in self._records:
            try:
                concluded += record._concluded()
            except BinaryNotFoundError:
                raise
            except (TcptollError, OSError) as error:
                self._skip(record.path, error)
        return concluded

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, at: int) -> Record:
        return self._records[at]

    def __repr__(self) -> str:
        trials = sum(len(run.trials) for run in self._runs)
        return f"<Records: {len(self)} with {trials} trials, {len(self.skipped)} files skipped>"

    def _repr_html_(self) -> str:
        return _notebook.frame_of([record.path for record in self._records])


def _paths(source: PathLike | Iterable[PathLike]) -> Sequence[PathLike]:
    if not isinstance(source, (str, os.PathLike)):
        return list(source)
    if os.path.isdir(source):
        paths = sorted(glob.glob(os.path.join(glob.escape(os.fspath(source)), "*.jsonl")))
    elif os.path.exists(source):
        return [source]
    else:
        paths = sorted(glob.glob(os.fspath(source), recursive=True))
    if not paths:
        raise FileNotFoundError(f"no record matches {os.fspath(source)!r}")
    return paths


def _decoded(path: str, kept: dict[str, Any], name: str) -> Histogram:
    try:
        return Histogram.of_summary(kept)
    except HdrError as error:
        remedy = "Leave this distribution out, or restore the file from a copy"
        raise RecordError(path, None, f"{printable(name)}: {error}", remedy) from error
