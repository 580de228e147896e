"""Writes histograms as the program does, from values: an encoder that shares no line with the decoder."""

from __future__ import annotations

import base64
import struct
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

TOP_NS = 3600 * 10**9


def summary(values_ns: Sequence[int]) -> dict[str, Any]:
    """What a record keeps of these values."""
    if not values_ns:
        return {"count": 0}
    figures = {"min": min(values_ns) / 1e3, "max": max(values_ns) / 1e3}
    mean = float(sum(values_ns)) / len(values_ns) / 1e3
    return {"count": len(values_ns), **figures, "mean": mean, "hdr": text(values_ns)}


def text(values_ns: Sequence[int]) -> str:
    """HDR V2, deflated, base64."""
    return packed(payload(Counter(map(bucket, values_ns))))


def packed(numbers: bytes, *, highest: int = TOP_NS, claimed: int | None = None) -> str:
    """The frame around encoded counts."""
    length = len(numbers) if claimed is None else claimed
    plain = struct.pack(">IIIIQQd", 0x1C849313, length, 0, 3, 1, highest, 1.0) + numbers
    return deflated(plain)


def deflated(plain: bytes) -> str:
    """The outer frame."""
    inner = zlib.compress(plain)
    return base64.b64encode(struct.pack(">II", 0x1C849314, len(inner)) + inner).decode()


def bucket(ns: int) -> int:
    """Counted up, bucket by bucket of one size, until the value is reached."""
    size, index, begins = 1, 2048, 2048
    if ns < 2048:
        return ns
    while True:
        size *= 2
        if ns < begins + 1024 * size:
            return index + (ns - begins) // size
        begins += 1024 * size
        index += 1024


def payload(counts: Counter[int]) -> bytes:
    """Zigzag numbers of 7 bits a byte; runs of zeros are negative."""
    numbers, before = [], -1
    for index in sorted(counts):
        if index - before > 1:
            numbers.append(-(index - before - 1))
        numbers.append(counts[index])
        before = index
    return b"".join(map(number, numbers))


def number(value: int) -> bytes:
    """One zigzag number."""
    left = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while len(out) < 8 and left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
