"""Shows the points of a fleet: a table that is redrawn on a terminal, otherwise a line per change."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from typing import TextIO

from .._errors import printable
from .store import STATES, Point, State

_REDRAW_S = 0.2
_BAR = 20
#: Order of points that do not all fit: those that need attention first.
_FIRST = ("running", "failed", "missing", "refused", "waiting", "done")


class Screen:
    """Called with every change; draws at most five times a second."""

    def __init__(self, state: State, file: TextIO, quiet: bool = False) -> None:
        self._state, self._file, self._quiet = state, file, quiet
        self._terminal = file.isatty()
        self._drawn = 0.0
        self._lines = 0
        self._shown: dict[str, str] = {}
        self._begun: dict[str, float] = {}

    def show(self, last: bool) -> None:
        """Draws the state; `last` if nothing follows."""
        if self._quiet:
            return
        if not self._terminal:
            self._changes()
            return
        moment = time.monotonic()
        if not last and moment - self._drawn < _REDRAW_S:
            return
        self._drawn = moment
        width, height = shutil.get_terminal_size((80, 24))
        lines = table(self._state, width - 1, height - 1)
        up = f"\x1b[{self._lines}F" if self._lines else ""
        self._file.write(up + "\x1b[J" + "\n".join(lines) + "\n")
        self._file.flush()
        self._lines = len(lines)

    def _changes(self) -> None:
        for name, point in self._state.points.items():
            line = point.state + (f": {point.reason}" if point.reason else "")
            if self._shown.get(name) != line:
                self._shown[name] = line
                trials = f" ({_trials(point)})" if point.state == "done" else ""
                self._file.write(f"{_name(name)}: {point.state}{trials}" + (f": {point.reason}" if point.reason else "") + "\n")
        self._file.flush()


def table(state: State, width: int, height: int) -> list[str]:
    """At most `height` lines of at most `width` characters."""
    counts = Counter(point.state for point in state.points.values())
    summary = ", ".join(f"{counts[name]} {name}" for name in STATES if counts[name]) or "no points"
    lines = [f"{printable(state.name, 40)}: {summary}"]
    points = list(state.points.items())
    room = max(1, height - 1)
    if len(points) > room:
        points.sort(key=lambda item: _FIRST.index(item[1].state))
        left_out = len(points) - (room - 1)
        points = points[: room - 1]
    else:
        left_out = 0
    column = max([4, *(len(_name(name)) for name, _ in points)])
    for name, point in points:
        done = min(1.0, point.done / point.planned) if point.planned else 0.0
        bar = ("#" * round(_BAR * done)).ljust(_BAR, ".") if point.state == "running" else " " * _BAR
        after = f"  {printable(point.reason, 2000)}" if point.reason else ""
        lines.append(f"  {_name(name):<{column}}  {point.state:<7}  {bar if width >= 70 and not after else ''}"
                     f"  {_trials(point):>14}  {_age(point.seconds):>6}{after}")  # fmt: skip
    if left_out:
        lines.append(f"  … and {left_out} more")
    return [line[: width - 1] + "…" if len(line) > width else line for line in lines]


def _trials(point: Point) -> str:
    shown = f"{point.done}/{point.planned} trials" if point.state != "done" else f"{point.done} trials"
    return shown + (f", {point.found} found" if point.found else "")


def _age(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds else ""
    return f"{int(seconds) // 60}m{int(seconds) % 60:02d}s"


def _name(name: str) -> str:
    return printable(name, 24)
