"""Reads records and prints what they say: `python examples/records.py 'runs/*.jsonl'`.

Needs `pip install "tcptoll[polars]"`; with altair too (`"tcptoll[polars,plots]"`) it writes a chart, records.html.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import polars as pl

import tcptoll


def main() -> int:
    """The exit status is 2 if there is no record."""
    if len(sys.argv) < 2:
        print("usage: python examples/records.py RECORD…", file=sys.stderr)
        return 2
    try:
        records = tcptoll.Records(sys.argv[1] if len(sys.argv) == 2 else sys.argv[1:])
    except FileNotFoundError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for path, reason in records.skipped:
        print(f"skipped {path!r}: {reason}", file=sys.stderr)

    # Each trial's figures, in long form: one row per metric.
    metrics = records.metrics(engine="polars")
    for metric in ("connect_us_p50", "requests_per_s"):
        of_arms = metrics.filter(pl.col("metric") == metric).group_by("arm", maintain_order=True)
        for (arm,), rows in of_arms:
            values = ", ".join(f"{value:,.4g}" for value in rows["value"])
            print(f"{arm}: {metric} of {len(rows)} rounds: {values}")

    # The distribution of every value that was measured, over all rounds and records: merged, not averaged.
    for arm in metrics["arm"].unique(maintain_order=True):
        try:
            latency = records.histogram(arm, "connect_us")
        except KeyError:
            continue
        p99 = latency.quantile(0.99)
        shown = "p99 needs 1,000 values" if p99 is None else f"p99 {p99:,.0f} µs"
        print(f"{arm}: {latency.count:,} connections, median {latency.quantile(0.5, few=True):,.0f} µs, {shown}")

    # What follows from it is the program's to say.
    for row in records.comparisons(engine="rows"):
        print(f"{row['a']} against {row['b']}, {row['metric']}: {row['verdict']}")

    if importlib.util.find_spec("altair"):
        chart(records).save("records.html")
        print("wrote records.html")
    return 0


def chart(records: tcptoll.Records) -> Any:
    """Each trial as a point, by arm."""
    import altair as alt

    rows = records.metrics(engine="polars").filter(pl.col("metric").str.ends_with("_us_mean"))
    points = alt.Chart(rows).mark_circle().encode(x="value:Q", y="arm:N", color="record:N", tooltip=["round", "value"])
    return points.facet(row="metric:N").resolve_scale(x="independent")


if __name__ == "__main__":
    sys.exit(main())
