"""Mean delay each way of UDP datagrams over the lab's link, in ms.

one_way.py            the server: stamps and returns each datagram
one_way.py EVERY S    the client: one every EVERY ms for S seconds; prints both means

Both hosts have the machine's monotonic clock.
"""

import os
import select
import socket
import struct
import sys
import threading
import time


def serve():
    peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    peer.bind(("0.0.0.0", 9999))
    # The lab waits for a server that listens.
    listener = socket.create_server(("0.0.0.0", 9998))
    while listener:
        data, client = peer.recvfrom(100)
        peer.sendto(data[:8] + struct.pack("!q", time.monotonic_ns()), client)


def receive(peer, until, ways):
    while time.monotonic() < until:
        if select.select([peer], [], [], 0.1)[0]:
            data = peer.recv(100)
            now = time.monotonic_ns()
            sent, returned = struct.unpack("!qq", data)
            ways[0].append(returned - sent)
            ways[1].append(now - returned)


def send(every_s, lasts_s):
    peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    peer.connect((os.environ["TCPTOLL_SERVER"], 9999))
    ways = ([], [])
    until = time.monotonic() + lasts_s + 1
    receiver = threading.Thread(target=receive, args=(peer, until, ways))
    receiver.start()
    due = time.monotonic()
    for _ in range(int(lasts_s / every_s)):
        peer.send(struct.pack("!q", time.monotonic_ns()))
        due += every_s
        time.sleep(max(0, due - time.monotonic()))
    receiver.join()
    print(*(sum(way) / len(way) / 1e6 for way in ways))


if len(sys.argv) > 1:
    send(float(sys.argv[1]) / 1e3, float(sys.argv[2]))
else:
    serve()
