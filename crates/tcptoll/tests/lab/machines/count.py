"""What clients of a machine feel: a bounded number of requests, and what became of each.

    python3 count.py connects|requests ADDRESS PORT NUMBER PER_S
    python3 count.py pool ADDRESS PORT NUMBER CONNECTIONS
    python3 count.py race PORT SERVER_PORT NUMBER BURST [PERIOD_S]
    python3 count.py left PORT NUMBER

It prints one line of JSON.
"""

import collections
import json
import re
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


def pool(address, port, number, connections):
    """Requests that take turns on the same connections."""
    clients = [socket.create_connection((address, port), PATIENCE_S) for _ in range(connections)]
    came = collections.Counter()
    for n in range(number):
        client = clients[n % connections]
        client.sendall(GET.replace(b"Connection: close\r\n", b""))
        came["ok" if b" 200 " in client.recv(65536)[:16] else "failed"] += 1
    return came


POST = (
    b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 1\r\n\r\nx"
)
# Longer than the servers of the machines keep an idle connection, s.
KEPT_S = 8.0


def burst(clients):
    """Requests at one moment: each leaves an idle connection from the proxy to its server. Their statuses."""
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


def established(port):
    with open("/proc/self/net/tcp", "rb") as file:
        return len(re.findall(rb":%04X [0-9A-F]+:[0-9A-F]+ 01 " % port, file.read()))


def closing(server_port, period_s):
    """Waits until the server begins to close idle connections, or for this time."""
    began = time.monotonic()
    most = 0
    while (waited := time.monotonic() - began) < (period_s or KEPT_S):
        now = established(server_port)
        if now < most:
            break
        most = now
    return waited


def race(port, server_port, number, size, period_s=None):
    """Bursts that come just when the server closes the connections of the one before; or each after a time."""
    statuses, waited = collections.Counter(), []
    for n in range(number // size + 1):
        address = ("127.0.0.1", port)
        clients = [socket.create_connection(address, timeout=5) for _ in range(size)]
        if n:
            waited.append(closing(server_port, period_s))
        came = burst(clients)
        # The first finds no idle connection.
        statuses += came if n else collections.Counter()
    return dict(statuses, period_s=round(sum(waited) / len(waited), 3))


def left(port, number):
    """Connections whose client closed, and that the server still has a second later."""
    mine = set()
    for _ in range(number):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
            client.sendall(GET)
            client.recv(65536)
            mine.add(client.getsockname()[1])
    time.sleep(1)
    with open("/proc/self/net/tcp") as file:
        lines = [line.split() for line in file]
    waits = [line for line in lines[1:] if line[3] == "08" and line[1].endswith(f":{port:04X}")]
    return {"close_wait": sum(int(line[2].split(":")[1], 16) in mine for line in waits)}


def main():
    what, *rest = sys.argv[1:]
    if what in ("connects", "requests"):
        address, port, number, per_s = rest
        came = paced(address, int(port), int(number), float(per_s), what == "requests")
    elif what == "pool":
        came = pool(rest[0], *map(int, rest[1:]))
    elif what == "race":
        came = race(*map(int, rest[:4]), *map(float, rest[4:]))
    else:
        came = left(*map(int, rest))
    print(json.dumps(came))


main()
