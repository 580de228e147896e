"""An HTTP server whose capacity is arithmetic: WORKERS requests at a time, SERVICE seconds each.

capacity.py ADDRESS PORT WORKERS SERVICE LOG [KIND]

A request takes the worker that is free first, and keeps it for SERVICE seconds from when it got it:
no more than WORKERS / SERVICE requests per second can be answered, and saturated exactly as many
are. LOG gets a line for each response, when it was sent: ns of CLOCK_MONOTONIC. With port 0 the
kernel chooses, and the port is the first line of stdout.

KIND: plain (default); late: accepts only after half a second; early: sends a response before
each request, and none after; reset: resets each connection at once; silent: never answers; closes:
answers once and closes without saying so; half: resets every second connection.
"""

import itertools
import os
import socket
import struct
import sys
import threading
import time

NUMBERS = itertools.count()
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Workers:
    def __init__(self, count, service_ns):
        self.free_ns = [0] * count
        self.service_ns = service_ns
        self.lock = threading.Lock()

    def serve(self):
        """Takes the worker that is free first, for its time."""
        now = time.monotonic_ns()
        with self.lock:
            worker = min(range(len(self.free_ns)), key=self.free_ns.__getitem__)
            until = max(now, self.free_ns[worker]) + self.service_ns
            self.free_ns[worker] = until
        left = until - time.monotonic_ns()
        if left > 0:
            time.sleep(left / 1e9)


def converse(connection, workers, log, kind):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if kind == "reset" or kind == "half" and next(NUMBERS) % 2:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        return
    if kind == "early":
        connection.sendall(RESPONSE)
    text = b""
    while True:
        while b"\r\n\r\n" not in text:
            more = connection.recv(65536)
            if not more:
                return
            text += more
        text = text.split(b"\r\n\r\n", 1)[1]
        if kind == "silent":
            continue
        workers.serve()
        sent = time.monotonic_ns()
        connection.sendall(RESPONSE)
        os.write(log, b"%d\n" % sent)
        if kind == "closes":
            return


def guarded(connection, *rest):
    try:
        converse(connection, *rest)
    except OSError:
        pass
    finally:
        connection.close()


def main():
    address, port, count, service, log = sys.argv[1:6]
    kind = sys.argv[6] if len(sys.argv) > 6 else "plain"
    listener = socket.create_server((address, int(port)), backlog=512)
    if port == "0":
        print(listener.getsockname()[1], flush=True)
    log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    workers = Workers(int(count), int(float(service) * 1e9))
    threading.stack_size(256 << 10)
    while True:
        if kind == "late":
            time.sleep(0.5)
        connection, _ = listener.accept()
        rest = (connection, workers, log, kind)
        threading.Thread(target=guarded, args=rest, daemon=True).start()


main()
