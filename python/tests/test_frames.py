"""Tables are the same whichever engine makes them, and say what was left out."""

from __future__ import annotations

import builtins
import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest
from conftest import NAMES, lines_of, written

import tcptoll
from tcptoll import Record, Records

TABLES = ("trials", "metrics", "series")


def without_nan(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of pandas with None for what is absent."""

    def plain(value: Any) -> Any:
        return None if isinstance(value, float) and math.isnan(value) else value

    return [{name: plain(value) for name, value in row.items()} for row in rows]


@pytest.mark.parametrize("table", TABLES)
def test_polars_equals_pandas_and_rows(folder: Path, table: str) -> None:
    records = Records(folder)
    assert len(records) == len(NAMES) and not records.skipped
    make = getattr(records, table)
    rows = make(excluded=True, engine="rows")
    polars, pandas = make(excluded=True, engine="polars"), make(excluded=True, engine="pandas")
    assert polars.columns == list(pandas.columns) == list(rows[0])
    assert polars.to_dicts() == rows
    assert without_nan(pandas.to_dict("records")) == rows


def test_an_empty_table_keeps_its_columns_and_types(folder: Path) -> None:
    nothing = Record(folder / "http_nothing.jsonl")
    whole = Record(folder / "connect_rounds.jsonl")
    assert nothing.metrics(engine="polars").schema["value"] == whole.metrics(engine="polars").schema["value"]
    assert str(nothing.metrics(engine="pandas").dtypes["n"]) == "int64"


def test_trials_that_do_not_count_are_left_out_unless_asked_for_and_say_why(tmp_path: Path) -> None:
    lines = list(lines_of("connect_rounds"))
    trials = [line for line in lines if line["line"] == "trial"]
    trials[0]["invalid"] = "the client used up its CPU"
    trials[1]["arm"]["failure"] = "no route"
    trials[2]["arm"]["partial"] = True
    again = {**trials[3], "attempt": 1}
    path = tmp_path / "run.jsonl"
    path.write_text("".join(map(written, [lines[0], *trials, again])), encoding="utf-8")
    record = Record(path)
    counting = record.trials(engine="rows")
    every = record.trials(excluded=True, engine="rows")
    assert (len(every), len(counting)) == (11, 7)
    assert [row["why"] for row in every[:4]] == [
        "the client used up its CPU",
        "no route",
        "stopped before it was complete",
        "repeated in the same round",
    ]
    assert all(row["valid"] and row["why"] is None for row in counting)
    assert counting[-1]["attempt"] == 1
    arm = trials[0]["arm"]["name"]
    left_out = record.histogram(arm, "connect_us", excluded=True).count - record.histogram(arm, "connect_us").count
    assert left_out > 0


def test_factors_are_columns_over_records_of_different_experiments(folder: Path) -> None:
    records = Records([folder / "connect_rounds.jsonl", folder / "keepalive_window.jsonl"])
    rows = records.trials(engine="rows")
    assert {row["factor_backlog"] for row in rows} == {"4", "4096", None}
    assert {row["factor_mechanism"] for row in rows} == {"none", "tcp", None}


def test_histograms_merge_over_records(folder: Path) -> None:
    path = folder / "connect_rounds.jsonl"
    one, twice = Record(path), Records([path, path])
    arm = one.trials(engine="rows")[0]["arm"]
    ours = one.histogram(arm, "connect_us")
    assert twice.histogram(arm, "connect_us") == ours.merge(ours)


def test_a_distribution_that_does_not_exist_is_answered_with_those_that_do(folder: Path) -> None:
    record = Record(folder / "connect_rounds.jsonl")
    with pytest.raises(KeyError, match="arm 'backlog 4096'"):
        record.histogram("backlog 5", "connect_us")
    with pytest.raises(KeyError, match="'connect_us'"):
        record.histogram("backlog 4", "connect_ms")


def test_a_parquet_file_holds_the_metrics(folder: Path, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    record = Record(folder / "connect_rounds.jsonl")
    record.to_parquet(tmp_path / "run.parquet")
    assert polars.read_parquet(tmp_path / "run.parquet").equals(record.metrics(engine="polars"))
    with pytest.raises(ValueError, match="trials, metrics"):
        record.to_parquet(tmp_path / "x.parquet", "trails")
    with pytest.raises(ValueError, match="rows"):
        record.to_parquet(tmp_path / "x.parquet", engine="rows")


def test_without_polars_and_pandas_the_error_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Record(folder / "connect.jsonl")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install "tcptoll\[polars\]"'):
        record.trials()
    with pytest.raises(ImportError, match=r'pip install "tcptoll\[pandas\]"'):
        record.trials(engine="pandas")
    assert record.trials(engine="rows")


def test_an_unknown_engine_is_refused_with_those_that_exist(folder: Path) -> None:
    with pytest.raises(ValueError, match='"polars", "pandas" or "rows"'):
        Record(folder / "connect.jsonl").trials(engine="dask")  # type: ignore[arg-type]


def test_reading_imports_the_standard_library_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refusing(name: str, *rest: Any) -> Any:
        assert name.partition(".")[0] not in ("polars", "pandas", "numpy", "altair")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refusing)
    assert Records(folder).metrics(engine="rows")


def test_everything_that_is_offered_has_a_docstring() -> None:
    for name in tcptoll.__all__:
        assert getattr(tcptoll, name).__doc__, name



def test_the_name_of_the_machine_is_a_column(tmp_path: Path) -> None:
    header, *trials = list(lines_of("connect_rounds"))[:-1]
    for name, seen in (("fra1", "fra1"), (7, None)):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(map(written, [{**header, "vantage": name}, *trials])), encoding="utf-8")
        for table in TABLES:
            assert {row["vantage"] for row in getattr(Record(path), table)(engine="rows")} == {seen}
