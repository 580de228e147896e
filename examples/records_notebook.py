# A marimo notebook: `marimo edit examples/records_notebook.py -- 'runs/*.jsonl'`, or run it as a script.
# Needs `pip install "tcptoll[polars,plots]" marimo`. Without an argument it measures three links first, which takes
# about ten seconds.
import marimo

app = marimo.App(width="medium")


@app.cell
def _():
    import sys

    import altair as alt
    import marimo as mo
    import polars as pl

    import tcptoll

    return alt, mo, pl, sys, tcptoll


@app.cell
def _(mo, sys, tcptoll):
    if len(sys.argv) > 1:
        records = tcptoll.Records(sys.argv[1])
    else:
        run = tcptoll.run("connect", link=["same-room", "metro", "cross-region"], count=200, rounds=5)
        records = tcptoll.Records([run.path])
    mo.md("\n".join(f"- skipped {path}: {reason}" for path, reason in records.skipped) or f"{records!r}")
    return (records,)


@app.cell
def _(mo):
    mo.md("""
    ## Trials

    One point per trial and metric. Trials that do not count are left out.
    """)
    return


@app.cell
def _(alt, pl, records):
    metrics = records.metrics(engine="polars")
    _rows = metrics.filter(pl.col("metric").is_in(["connect_us_p50", "connections_per_s"]))
    _points = alt.Chart(_rows).mark_circle(size=60, opacity=0.6)
    _points.encode(x=alt.X("value:Q").scale(type="log"), y="arm:N", tooltip=["round", "value", "unit"]).facet(
        row="metric:N"
    ).resolve_scale(x="independent")
    return (metrics,)


@app.cell
def _(mo):
    mo.md("""
    ## Distributions

    All rounds merged into one histogram per arm. Nothing is averaged: the counts of the buckets are added.
    """)
    return


@app.cell
def _(alt, metrics, pl, records):
    def _curve(arm):
        values, counts = records.histogram(arm, "connect_us").buckets()
        share = pl.Series(counts).cum_sum() / sum(counts)
        return pl.DataFrame({"arm": arm, "µs": pl.Series(values), "share": share})

    _arms = metrics.filter(pl.col("metric") == "connect_us_p50")["arm"].unique(maintain_order=True)
    alt.Chart(pl.concat([_curve(arm) for arm in _arms])).mark_line(interpolate="step-after").encode(
        x=alt.X("µs:Q").scale(type="log"), y="share:Q", color="arm:N"
    )
    return


@app.cell
def _(mo):
    mo.md("""
    ## Verdicts

    The program computes them, with intervals that hold together.
    """)
    return


@app.cell
def _(records):
    records.comparisons(engine="polars")
    return


@app.cell
def _(records):
    records.warnings(engine="polars")
    return


if __name__ == "__main__":
    app.run()
