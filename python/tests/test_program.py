"""Python says what the program says, of every stored record."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import NAMES

from tcptoll import Histogram, Record, Records

pytestmark = pytest.mark.usefixtures("program")


@pytest.mark.parametrize("name", NAMES)
def test_arms_have_the_figures_of_the_program(folder: Path, name: str) -> None:
    record = Record(folder / f"{name}.jsonl")
    rows = record.arms(engine="rows")
    by_arm = {arm["name"]: arm for arm in record.summary()["arms"]}
    assert {row["arm"] for row in rows} == {name for name, arm in by_arm.items() if arm["metrics"]}
    for row in rows:
        arm = by_arm[row["arm"]]
        assert (row["attempts"], row["ok"]) == (arm["attempts"], arm["ok"])
        assert row["attempts"] == row["ok"] + row["errors"]
        metric = arm["metrics"].get(row["metric"])
        if metric is None:
            histogram, figure = row["metric"].rsplit("_", 1)
            assert row["value"] == arm["histograms"][histogram][figure]
        else:
            assert (row["value"], row["unit"], row["n"]) == (metric["value"], metric["unit"], metric["n"])
            assert [row["ci95_low"], row["ci95_high"]] == metric.get("ci95", [None, None])


@pytest.mark.parametrize("name", NAMES)
def test_the_trials_that_count_and_their_metrics_are_those_of_the_program(folder: Path, name: str) -> None:
    record = Record(folder / f"{name}.jsonl")
    every = record.metrics(excluded=True, engine="rows")
    for arm in record.summary()["arms"]:
        for round_ in arm.get("rounds", []):
            rows = [
                row for row, trial in zip(every, _trials_of(record, every), strict=True)
                if row["arm"] == arm["name"] and trial == round_["began_s"]
            ]  # fmt: skip
            assert {row["metric"]: row["value"] for row in rows} == round_["metrics"]
            assert {row["why"] for row in rows} <= {round_.get("left_out")}


@pytest.mark.parametrize("name", NAMES)
def test_histograms_merge_to_those_of_the_program(folder: Path, name: str) -> None:
    record = Record(folder / f"{name}.jsonl")
    counting = {row["arm"] for row in record.trials(engine="rows")}
    for arm in record.summary()["arms"]:
        for histogram, summary in arm["histograms"].items() if arm["name"] in counting else ():
            ours = record.histogram(arm["name"], histogram)
            assert ours == Histogram.of_summary(summary), (arm["name"], histogram)
            assert (ours.count, ours.mean) == (summary["count"], summary["mean"])
            for figure, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999)):
                assert ours.quantile(q) == summary[figure], (arm["name"], histogram, figure)


@pytest.mark.parametrize("name", NAMES)
def test_comparisons_and_warnings_are_those_of_the_program(folder: Path, name: str) -> None:
    record = Record(folder / f"{name}.jsonl")
    summary = record.summary()
    said = [(one["a"], one["b"], one["verdict"], one.get("ratio")) for one in summary["comparisons"]]
    rows = record.comparisons(engine="rows")
    assert [(row["a"], row["b"], row["verdict"], row["ratio"]) for row in rows] == said
    warnings = [(one["id"], one["text"]) for one in summary["warnings"]]
    assert [(row["id"], row["text"]) for row in record.warnings(engine="rows")] == warnings


def test_a_record_that_only_the_program_refuses_is_skipped_and_named(folder: Path, tmp_path: Path) -> None:
    text = (folder / "connect.jsonl").read_text(encoding="utf-8")
    (tmp_path / "a.jsonl").write_text(text, encoding="utf-8")
    (tmp_path / "b.jsonl").write_text(text.replace('"softirq":{', '"softirq":7,"x":{', 1), encoding="utf-8")
    records = Records(tmp_path)
    assert {row["record"] for row in records.arms(engine="rows")} == {str(tmp_path / "a.jsonl")}
    assert [Path(one.path).name for one in records.skipped] == ["b.jsonl"]
    assert "line 2" in records.skipped[0].reason


def test_a_notebook_shows_the_report_in_a_frame_without_access_to_it(folder: Path) -> None:
    page = Record(folder / "connect_rounds.jsonl")._repr_html_()
    assert page.startswith('<iframe sandbox="allow-scripts"') and page.endswith("</iframe>")
    assert page.count("<") == 2 and "backlog 4096" in page
    several = Records([folder / "connect.jsonl", folder / "http.jsonl"])._repr_html_()
    assert several.count("<") == 2


def _trials_of(record: Record, rows: list[dict[str, object]]) -> list[object]:
    """When the trial of each row began."""
    place = ("arm", "round", "order", "attempt")
    began: dict[tuple[object, ...], object] = {}
    for trial in record.trials(excluded=True, engine="rows"):
        began[tuple(trial[key] for key in place)] = trial["began_s"]
    return [began[tuple(row[key] for key in place)] for row in rows]
