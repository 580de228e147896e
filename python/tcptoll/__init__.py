"""Reads every record of tcptoll, and runs it: what TCP connections cost, as tables.

    import tcptoll
    record = tcptoll.run("connect", link=["same-room", "metro"], rounds=15)
    record.comparisons()

Reading needs the standard library alone; tables are polars or pandas if one of them is installed.
docs/guide/python.md shows it with real output.
"""

from __future__ import annotations

from ._errors import BinaryNotFoundError, RecordError, TcptollError
from ._hdr import HdrError
from ._histogram import Histogram
from ._record import Record, Records, Skipped
from ._run import run



def __getattr__(name: str) -> str:
    """`__version__`, looked up when it is asked for: that takes longer than importing this package."""
    if name != "__version__":
        raise AttributeError(f"module 'tcptoll' has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tcptoll")
    except PackageNotFoundError:
        return "unknown: the package is not installed"


__all__ = [
    "BinaryNotFoundError",
    "HdrError",
    "Histogram",
    "Record",
    "RecordError",
    "Records",
    "Skipped",
    "TcptollError",
    "run",
]
