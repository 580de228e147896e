"""Three listeners on loopback and a bounded load on them, for so many seconds.

The one on port 8080 (backlog 16) accepts slowly from 35 % to 55 % of the time, the one on port 3306 (backlog 80) from
70 % to 80 %; then their queues overflow. The one on port 6379 always keeps up.
"""
import socket
import sys
import threading
import time

TOTAL = float(sys.argv[1])
BEGAN = time.monotonic()
OPEN_MAX = 3000


def now():
    return time.monotonic() - BEGAN


def slow_8080():
    return 0.35 * TOTAL < now() < 0.55 * TOTAL


def slow_3306():
    return 0.7 * TOTAL < now() < 0.8 * TOTAL


def serve(port, backlog, pause):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(backlog)

    def run():
        while True:
            connection, _ = listener.accept()
            time.sleep(pause())
            connection.close()

    threading.Thread(target=run, daemon=True).start()


def connect(port):
    client = socket.socket()
    client.setblocking(False)
    try:
        client.connect(("127.0.0.1", port))
    except BlockingIOError:
        pass
    return client


serve(8080, 16, lambda: 0.2 if slow_8080() else 0)
serve(6379, 128, lambda: 0)
serve(3306, 80, lambda: 0.05 if slow_3306() else 0)
clients = []
tick = 0
while now() < TOTAL:
    per_s = {8080: 60 if slow_8080() else 10, 6379: 20, 3306: 40 if slow_3306() else 10}
    for port, rate in per_s.items():
        for _ in range(rate // 10):
            if len(clients) < OPEN_MAX:
                clients.append((now(), connect(port)))
    while clients and now() - clients[0][0] > 3:
        clients.pop(0)[1].close()
    tick += 1
    time.sleep(max(0, tick * 0.1 - now()))
