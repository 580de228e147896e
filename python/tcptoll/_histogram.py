"""A distribution that merges exactly: over rounds, arms, records and machines."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from . import _hdr
from ._hdr import HdrError

#: So many values must lie beyond a quantile before it is shown, as in every report of tcptoll.
BEYOND_MIN = 10


class Histogram:
    """How measured times are distributed.

    Unit: µs. Buckets are at most 0.1 % wide, or 1 ns. Count, least and greatest value are exact; the
    mean is exact to the precision of a float.
    """

    __slots__ = ("_counts", "_max_ns", "_min_ns", "_sum_ns")

    def __init__(self) -> None:
        """An empty histogram; `Record.histogram` gives those with values."""
        self._counts: dict[int, int] = {}
        self._sum_ns = 0
        self._min_ns = 0
        self._max_ns = 0

    @classmethod
    def of_summary(cls, summary: Mapping[str, Any]) -> Histogram:
        """Reads a histogram as a record keeps it: `count`, `min`, `mean`, `max` and `hdr`.

        Raises HdrError if it is damaged, or if its figures contradict its buckets.
        """
        new = cls()
        count, text = summary["count"], summary.get("hdr")
        if count == 0:
            return new
        if text is None:
            raise HdrError("the record has figures of this distribution, but not the distribution")
        new._counts = _hdr.decode(text)
        if new.count != count:
            raise HdrError(f"the histogram holds {new.count} values, and the record says {count}")
        least, mean, greatest = summary.get("min"), summary.get("mean"), summary.get("max")
        if least is None or mean is None or greatest is None:
            raise HdrError("the record lacks the minimum, mean or maximum of this distribution")
        new._min_ns, new._max_ns = _rounded(least * 1e3), _rounded(greatest * 1e3)
        new._sum_ns = _rounded(mean * 1e3 * float(count))
        new._check()
        return new

    def _check(self) -> None:
        first, last = min(self._counts), max(self._counts)
        slack = self._sum_ns >> 40  # A mean that came through a float may pass a bound by its rounding.
        near = _bucket(self._min_ns) == first and _bucket(self._max_ns) == last
        above = self._sum_ns + slack >= self.count * self._min_ns
        if not (near and above and self._sum_ns <= self.count * self._max_ns + slack):
            raise HdrError("the minimum, mean and maximum of the histogram do not match its counts")

    def merge(self, other: Histogram) -> Histogram:
        """A new histogram with the values of both: the same as if all had been recorded in one."""
        return merged((self, other))

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self._counts.values())

    @property
    def min(self) -> float | None:
        """The least value in µs; None if there is none."""
        return self._min_ns / 1e3 if self._counts else None

    @property
    def max(self) -> float | None:
        """The greatest value in µs; None if there is none."""
        return self._max_ns / 1e3 if self._counts else None

    @property
    def mean(self) -> float | None:
        """The arithmetic mean in µs; None if there is none."""
        return float(self._sum_ns) / float(self.count) / 1e3 if self._counts else None

    def quantile(self, q: float, *, few: bool = False) -> float | None:
        """The `q` quantile in µs by nearest rank; `quantile(0.99)` is the p99.

        None: there is no value, or fewer than ten lie beyond the quantile, as everywhere in tcptoll;
        with `few=True` they are enough. `quantile(0)` and `quantile(1)` are the least and the greatest value.
        A quantile is the middle of its bucket, at most 0.05 % off what was measured.
        """
        if not 0 <= q <= 1:
            raise ValueError(f"quantile({q}): write a number from 0 to 1, like 0.99")
        count = self.count
        if count == 0:
            return None
        # As typed: in floats, 0.07 * 100 is above 7 and would be the 8th value.
        exact = Fraction(repr(float(q)))
        shorter = min(exact, 1 - exact)
        if shorter > 0 and count * shorter < BEYOND_MIN and not few:
            return None
        rank = max(math.ceil(count * exact), 1)
        if rank == 1:
            return self.min
        if rank == count:
            return self.max
        below = 0
        for index in sorted(self._counts):
            below += self._counts[index]
            if below >= rank:
                return min(max(_hdr.middle(index), self._min_ns), self._max_ns) / 1e3
        raise AssertionError("the ranks of all buckets add up to the count")

    def buckets(self) -> tuple[array[float], array[int]]:
        """Middle of each bucket that holds values, in µs, ascending, and the number of its values.

        Both are arrays of the standard library, which numpy, polars and pandas take as they are.
        """
        indices = sorted(self._counts)
        middles = array("d", (_hdr.middle(index) / 1e3 for index in indices))
        return middles, array("Q", (self._counts[index] for index in indices))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        ours = (self._counts, self._sum_ns, self._min_ns, self._max_ns)
        return ours == (other._counts, other._sum_ns, other._min_ns, other._max_ns)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if not self._counts:
            return "Histogram(empty)"
        median = self.quantile(0.5, few=True)
        return f"Histogram({self.count} values, {self.min:g} to {self.max:g} µs, median {median:g} µs)"


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """One histogram with the values of all."""
    whole = Histogram()
    for one in histograms:
        if not one._counts:
            continue
        first = not whole._counts
        whole._min_ns = one._min_ns if first else min(whole._min_ns, one._min_ns)
        whole._max_ns = max(whole._max_ns, one._max_ns)
        whole._sum_ns += one._sum_ns
        for index, count in one._counts.items():
            whole._counts[index] = whole._counts.get(index, 0) + count
    return whole


def _rounded(value: float) -> int:
    """To the nearest whole number, halves away from zero, as the program rounds."""
    if not 0 <= value < math.inf:
        raise HdrError("the minimum, mean or maximum of the histogram is not a time")
    whole = math.floor(value)
    return whole + (value - whole >= 0.5)


def _bucket(ns: int) -> int:
    return _hdr.index_of(min(max(ns, 1), _hdr.TOP_NS))
