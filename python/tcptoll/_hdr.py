"""Decodes the histogram of a record: HdrHistogram, V2 encoding, deflated, base64, nanoseconds.

Nothing here trusts its input: text and inflated bytes are bounded before anything of their size is
allocated, and a count of zeros never allocates. The bounds are those of the program's own reader.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib

#: The longest time that has a bucket, in ns: an hour.
TOP_NS = 3600 * 1_000_000_000
#: The longest text that is read; the longest that tcptoll writes is below 300 KiB.
TEXT_MAX = 1 << 20
#: The longest it may be once inflated: a header and 9 bytes for each bucket fit.
PLAIN_MAX = 512 << 10

_DEFLATED = 0x1C849314
_PLAIN = 0x1C849313
# Three significant digits need 2,000 steps below the first doubling, and a power of two is taken.
_STEPS = 2048
_HALF = _STEPS // 2
_OUTER = struct.Struct(">II")
_INNER = struct.Struct(">IIIIQQd")


class HdrError(ValueError):
    """The text is not a histogram of tcptoll; the message says why."""


def decode(text: str) -> dict[int, int]:
    """Number of values by index of their bucket; buckets without values are absent."""
    return _counts(_payload(_inflated(text)))


def _inflated(text: str) -> bytes:
    if len(text) > TEXT_MAX:
        raise HdrError(f"the histogram is {len(text)} characters long, more than the limit of {TEXT_MAX}")
    try:
        packed = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise HdrError("the histogram is not base64") from error
    if len(packed) < _OUTER.size:
        raise HdrError("the histogram is cut")
    cookie, length = _OUTER.unpack_from(packed)
    if cookie != _DEFLATED or length != len(packed) - _OUTER.size:
        raise HdrError("the histogram is not in HDR V2 deflate format")
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(packed[_OUTER.size :], PLAIN_MAX + 1)
    except zlib.error as error:
        raise HdrError("the histogram cannot be inflated") from error
    if len(plain) > PLAIN_MAX:
        raise HdrError(f"the histogram inflates to more than {PLAIN_MAX} bytes")
    if not inflater.eof:
        raise HdrError("the histogram is cut")
    return plain


def _payload(plain: bytes) -> bytes:
    if len(plain) < _INNER.size:
        raise HdrError("the histogram is cut")
    cookie, length, offset, digits, lowest, highest, _ratio = _INNER.unpack_from(plain)
    if cookie != _PLAIN or offset != 0 or length != len(plain) - _INNER.size:
        raise HdrError("the histogram is not in HDR V2 format")
    if (lowest, highest, digits) != (1, TOP_NS, 3):
        raise HdrError("the histogram does not span 1 ns to 3600 s with 3 digits")
    return plain[_INNER.size :]


def _counts(payload: bytes) -> dict[int, int]:
    """A positive number is the count of the next bucket, a negative one skips empty buckets."""
    counts: dict[int, int] = {}
    at = index = 0
    while at < len(payload):
        number = shift = 0
        while True:
            if at == len(payload):
                raise HdrError("the histogram is cut")
            byte = payload[at]
            at += 1
            if shift == 56:  # The ninth byte is the last, and has no bit that says "more".
                number |= byte << shift
                break
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        number = (number >> 1) ^ -(number & 1)
        if number > 0:
            counts[index] = number
        index += -number if number < 0 else 1
        if index > _BUCKETS:
            raise HdrError("the histogram has counts beyond 3600 s")
    return counts


def index_of(ns: int) -> int:
    """The bucket that holds a time."""
    doublings = max(ns.bit_length() - _STEPS.bit_length() + 1, 0)
    return doublings * _HALF + (ns >> doublings)


def lowest(index: int) -> int:
    """The shortest time of a bucket, in ns."""
    doublings, step = _place(index)
    return step << doublings


def middle(index: int) -> int:
    """The middle of a bucket, in ns, as the program rounds it."""
    doublings, step = _place(index)
    return (step << doublings) + ((1 << doublings) >> 1)


def _place(index: int) -> tuple[int, int]:
    if index < _STEPS:
        return 0, index
    doublings = index // _HALF - 1
    return doublings, index - doublings * _HALF


#: How many buckets there are.
_BUCKETS = index_of(TOP_NS) + 1
