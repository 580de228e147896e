"""Merging is exact, quantiles are those of the values, and nothing hostile is decoded."""

from __future__ import annotations

import math
import random

import hdr_writer
import pytest

from tcptoll import HdrError, Histogram


def histogram(values_ns: list[int]) -> Histogram:
    return Histogram.of_summary(hdr_writer.summary(values_ns))


def drawn(chance: random.Random) -> list[int]:
    """Times of any size, from 1 ns to an hour, none to a thousand of them."""
    top = math.log(hdr_writer.TOP_NS)
    return [int(math.exp(chance.uniform(0, top))) for _ in range(chance.randrange(1000))]


@pytest.mark.parametrize("seed", range(40))
def test_a_merged_histogram_equals_the_histogram_of_the_union(seed: int) -> None:
    chance = random.Random(seed)
    parts = [drawn(chance) for _ in range(chance.randrange(1, 6))]
    merged = Histogram()
    for part in parts:
        merged = merged.merge(histogram(part))
    assert merged == histogram([value for part in parts for value in part])


@pytest.mark.parametrize("seed", range(20))
def test_a_quantile_is_the_value_of_its_rank_within_half_a_bucket(seed: int) -> None:
    chance = random.Random(seed)
    values = sorted([*drawn(chance), 5_000])
    whole = histogram(values)
    for percent in (0, 1, 7, 25, 50, 90, 99, 100):
        rank = max(-(-len(values) * percent // 100), 1)
        quantile = whole.quantile(percent / 100, few=True)
        assert quantile == pytest.approx(values[rank - 1] / 1e3, rel=0.0005, abs=0.001), percent
    assert (whole.quantile(0), whole.quantile(1)) == (whole.min, whole.max)


def test_count_least_mean_and_greatest_are_those_of_the_values_and_not_of_buckets() -> None:
    # (1,000,001 + 1,000,003 + 9,999,999) / 3 = 4,000,001; the buckets there are 512 ns and 8 µs.
    whole = histogram([1_000_001, 1_000_003, 9_999_999])
    assert (whole.count, whole.min, whole.mean, whole.max) == (3, 1000.001, 4000.001, 9999.999)


def test_a_quantile_needs_ten_values_beyond_it() -> None:
    assert histogram(list(range(1000, 1999))).quantile(0.99) is None
    assert histogram(list(range(1000, 2000))).quantile(0.99) == pytest.approx(1.989)
    assert histogram([7, 8, 9]).quantile(0.5) is None
    assert histogram([7, 8, 9]).quantile(0.5, few=True) == 0.008


def test_an_empty_histogram_has_no_figures() -> None:
    empty = histogram([])
    assert (empty.count, empty.min, empty.mean, empty.max, empty.quantile(1)) == (0, None, None, None, None)
    assert [list(part) for part in empty.buckets()] == [[], []]
    assert empty == Histogram()


def test_buckets_hold_every_value_in_ascending_order() -> None:
    middles, counts = histogram([3000, 3000, 5, 3_600_000_000_000]).buckets()
    assert list(middles) == sorted(middles) and list(counts) == [1, 2, 1]
    assert (middles.typecode, counts.typecode) == ("d", "Q")


def test_a_share_that_is_none_is_refused() -> None:
    for q in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="from 0 to 1"):
            Histogram().quantile(q)


ZERO_RUN = hdr_writer.number(-(2**63))
HOSTILE = {
    "not base64": "€",
    "cut": "HIST",
    "other format": "AAAAAAAAAAAAAAAA",
    "no zlib": "HISTFAAAAAQAAAAA",
    "a bomb of zeros": hdr_writer.deflated(bytes(200 << 20)),
    "a claim of 4 GiB": hdr_writer.packed(b"\2", claimed=2**32 - 1),
    "another range": hdr_writer.packed(b"\2", highest=10**6),
    "a run of 2^63 empty buckets": hdr_writer.packed(ZERO_RUN + b"\2"),
    "counts after the last bucket": hdr_writer.packed(b"\2" * 40_000),
    "a number that is cut": hdr_writer.packed(b"\x80\x80"),
    "too long": "A" * (1 << 21),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_histogram_is_refused_before_it_takes_memory(text: str) -> None:
    with pytest.raises(HdrError):
        Histogram.of_summary({"count": 1, "min": 0.001, "mean": 0.001, "max": 0.001, "hdr": text})


@pytest.mark.parametrize(
    "figures",
    [{"count": 4}, {"min": 9.0}, {"mean": 0.5}, {"max": 1e308}, {"mean": -1.0}, {"hdr": None}, {"mean": None}],
)
def test_figures_that_contradict_the_buckets_are_refused(figures: dict[str, float | None]) -> None:
    sound = hdr_writer.summary([5000, 6000, 7000])
    assert Histogram.of_summary(sound).count == 3
    with pytest.raises(HdrError):
        Histogram.of_summary({**sound, **figures})
