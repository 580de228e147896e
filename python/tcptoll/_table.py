"""Columns become a frame: polars, pandas, or rows without any dependency."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

Engine: TypeAlias = Literal["polars", "pandas", "rows"]
Kind: TypeAlias = Literal["text", "int", "float", "bool"]

_FRAMES = ("polars", "pandas")


class Table:
    """Columns of one length, each with its kind; absent values are None."""

    def __init__(self, kinds: dict[str, Kind]) -> None:
        self.kinds = kinds
        self.columns: dict[str, list[Any]] = {name: [] for name in kinds}

    def add(self, values: Iterable[Any]) -> None:
        """Appends one row; values in the order of the columns."""
        for column, value in zip(self.columns.values(), values, strict=True):
            column.append(value)

    def repeat(self, names: Sequence[str], values: Iterable[Any], times: int) -> None:
        """Appends the same values `times` times to some columns."""
        for name, value in zip(names, values, strict=True):
            self.columns[name].extend([value] * times)

    def frame(self, engine: Engine | None) -> Any:
        """The frame of an engine; without one, of the first that is installed."""
        chosen = engine_of(engine)
        if chosen == "rows":
            names = tuple(self.columns)
            return [dict(zip(names, row, strict=True)) for row in zip(*self.columns.values(), strict=True)]
        return self._polars() if chosen == "polars" else self._pandas()

    def _polars(self) -> Any:
        pl = importlib.import_module("polars")
        kinds = {"text": pl.String, "int": pl.Int64, "float": pl.Float64, "bool": pl.Boolean}
        return pl.DataFrame(self.columns, schema={name: kinds[kind] for name, kind in self.kinds.items()})

    def _pandas(self) -> Any:
        pd = importlib.import_module("pandas")
        kinds = {"text": "str", "int": "int64", "float": "float64", "bool": "bool"}
        if pd.__version__.startswith(("1.", "2.")):  # There `str` would make "None" of what is absent.
            kinds["text"] = "object"
        series = {
            name: pd.Series(values, dtype=kinds[self.kinds[name]]) for name, values in self.columns.items()
        }
        return pd.DataFrame(series, columns=list(self.columns))


def engine_of(engine: Engine | None) -> Engine:
    """The engine to use. Raises ImportError if it is not installed, and ValueError if there is none such."""
    if engine == "rows":
        return engine
    if engine is None:
        for name in _FRAMES:
            if importlib.util.find_spec(name):
                return name  # type: ignore[return-value]
        raise ImportError(
            'neither polars nor pandas is installed: type `pip install "tcptoll[polars]"`, or use engine="rows"'
        )
    if engine not in _FRAMES:
        raise ValueError(f'engine={engine!r}: write "polars", "pandas" or "rows"')
    if not importlib.util.find_spec(engine):
        raise ImportError(f'{engine} is not installed: type `pip install "tcptoll[{engine}]"`')
    return engine
