"""A link between two network namespaces whose packets are late in one direction only."""

import collections
import ctypes
import fcntl
import os
import select
import struct
import subprocess
import sys
import time

TUNSETIFF = 0x400454CA
TUN_WITHOUT_HEADER = 0x1001


def device(name, address, peer):
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH14x", name.encode(), TUN_WITHOUT_HEADER))
    for words in (["address", "add", address, "peer", peer, "dev", name], ["link", "set", name, "up"]):
        subprocess.check_call(["ip", *words])
    return tun


def passed_on(tun, packet):
    try:
        os.write(tun, packet)
    except OSError:
        pass  # Lost, as on any link.


server_pid, client_address, server_address, late_s = sys.argv[1:]
client = device("late0", client_address, server_address)
network = os.open(f"/proc/{server_pid}/ns/net", os.O_RDONLY)
if ctypes.CDLL(None, use_errno=True).setns(network, 0) != 0:
    raise OSError(ctypes.get_errno(), "setns")
server = device("late1", server_address, client_address)
print("up", flush=True)
waiting = collections.deque()
while True:
    now = time.monotonic()
    while waiting and waiting[0][0] <= now:
        passed_on(server, waiting.popleft()[1])
    wait = max(0, waiting[0][0] - now) if waiting else None
    for tun in select.select([client, server], [], [], wait)[0]:
        packet = os.read(tun, 65536)
        if tun == client:
            waiting.append((time.monotonic() + float(late_s), packet))
        else:
            passed_on(client, packet)
