"""Links with a delay between network namespaces, as TUN devices that this process connects.

Many kernels come without netem, so the delay is made here. It is good for a control connection, not for measurements.

    python bench/delays.py HUB NAMESPACE=MS …      # prints `ready`; ends with its standard input
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import select
import struct
import sys
import time

_TUNSETIFF = 0x400454CA
_TUN, _NO_PI = 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000
_MTU = 65536


def enter(namespace: str) -> None:
    """Into a namespace of `ip netns`; what is opened afterwards belongs to it."""
    handle = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(handle, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns", namespace)
    os.close(handle)


def tun(name: str) -> int:
    """A TUN device in the current namespace."""
    handle = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(handle, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TUN | _NO_PI))
    return handle


def main(hub: str, *links: str) -> None:
    other: dict[int, tuple[int, float]] = {}
    for number, link in enumerate(links, 1):
        namespace, _, milliseconds = link.partition("=")
        enter(hub)
        near = tun(f"v{number}")
        enter(namespace)
        far = tun("uplink")
        # Half of the round trip in each direction.
        other[near], other[far] = (far, float(milliseconds) / 2000), (near, float(milliseconds) / 2000)
    print("ready", flush=True)
    waiting: list[tuple[float, int, int, bytes]] = []
    count = 0
    while True:
        left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        ready, _, _ = select.select([0, *other], [], [], left)
        moment = time.monotonic()
        for handle in ready:
            if handle == 0:  # Its standard input ended.
                return
            try:
                packet = os.read(handle, _MTU)
            except OSError:  # The device is not up yet.
                continue
            to, delay = other[handle]
            count += 1
            heapq.heappush(waiting, (moment + delay, count, to, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, to, packet = heapq.heappop(waiting)
            try:
                os.write(to, packet)
            except OSError:
                continue


if __name__ == "__main__":
    main(*sys.argv[1:])
