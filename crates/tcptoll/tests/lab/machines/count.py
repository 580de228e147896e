"""What clients of a machine feel: a bounded number of requests, and what became of each.

    python3 count.py connects|requests ADDRESS PORT NUMBER PER_S
    python3 count.py race PORT SERVER_PORT NUMBER BURST SWEEP_MS [PERIOD_S]
    python3 count.py left PORT NUMBER

It prints one line of JSON.
"""

import collections
import json
import socket
import sys
import threading
import time

# A SYN that was dropped is sent again after 1 s.
WAITED_S = 0.95
PATIENCE_S = 4
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def one(address, port, asks):
    """What became of one connection: `ok`, `waited` for a second SYN, or why it failed."""
    began = time.monotonic()
    try:
        with socket.create_connection((address, port), timeout=PATIENCE_S) as client:
            if asks:
                client.sendall(GET)
                if b" 200 " not in client.recv(65536)[:16]:
                    return "failed"
    except OSError:
        return "failed"
    return "waited" if time.monotonic() - began >= WAITED_S else "ok"


def paced(address, port, number, per_s, asks):
    """Clients at a fixed rate, whether or not earlier ones were answered."""
    came, threads, began = [], [], time.monotonic()
    for n in range(number):
        time.sleep(max(0.0, began + n / per_s - time.monotonic()))
        run = threading.Thread(target=lambda: came.append(one(address, port, asks)))
        run.start()
        threads.append(run)
    for run in threads:
        run.join()
    return collections.Counter(came)


POST = (
    b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 1\r\n\r\nx"
)
# A server that keeps connections for longer than this is asked at the same times as one that does not.
KEPT_S = 8.0


def burst(port, size):
    """Requests at one moment, each of which leaves an idle connection to the server behind the proxy; their statuses."""
    clients = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(size)]
    for client in clients:
        client.sendall(POST)
    statuses = collections.Counter()
    for client in clients:
        try:
            answer = client.recv(65536)
        except OSError:
            answer = b""
        statuses[answer[9:12].decode() or "none"] += 1
        client.close()
    return statuses


def sockets(port, state):
    with open("/proc/self/net/tcp") as file:
        lines = [line.split() for line in file]
    return sum(line[3] == state and line[1].endswith(f":{port:04X}") for line in lines[1:])


def closes_after(port, server_port, size):
    """After which time the server behind a proxy closes half of what a burst left idle, s; none where it keeps it."""
    began = time.monotonic()
    burst(port, size)
    idle = sockets(server_port, "01")
    while (waited := time.monotonic() - began) < KEPT_S:
        if sockets(server_port, "01") <= idle / 2:
            return waited
        time.sleep(0.001)
    return None


def race(port, server_port, number, size, sweep_ms, period_s=None):
    """Bursts that come just when the server closes the connections of the one before."""
    period_s = period_s or closes_after(port, server_port, size) or 3.0
    statuses, sent = collections.Counter(), time.monotonic()
    burst(port, size)
    rounds = number // size
    for n in range(rounds):
        # Around the moment at which half of the idle connections were closed.
        offset = sweep_ms / 1000 * ((n * 7) % rounds / rounds - 0.5)
        time.sleep(max(0.0, sent + period_s + offset - time.monotonic()))
        sent = time.monotonic()
        statuses += burst(port, size)
    return dict(statuses, period_s=round(period_s, 3))


def left(port, number):
    """Connections whose client closed, and that the server still has after a second."""
    for _ in range(number):
        one("127.0.0.1", port, True)
    time.sleep(1)
    return {"close_wait": sockets(port, "08")}


def main():
    what, *rest = sys.argv[1:]
    if what in ("connects", "requests"):
        address, port, number, per_s = rest
        came = paced(address, int(port), int(number), float(per_s), what == "requests")
    elif what == "race":
        came = race(*map(int, rest[:5]), *map(float, rest[5:]))
    else:
        came = left(*map(int, rest))
    print(json.dumps(came))


main()
