"""Load for `tcptoll watch`: listeners, their clients, and counts of its own.

Usage: watch_load.py CONFIG, with CONFIG as JSON: {"listeners": [LISTENER, ...]} or {"crowd": CROWD}.

It prints one JSON line when it is ready, runs until its standard input ends, then prints one JSON line with its
counts and ends. All of it runs in one thread: SIGSTOP freezes every client and every server.
"""

import heapq
import json
import random
import resource
import select
import socket
import struct
import sys
import time

TICK_S = 0.002
# A SYN is retransmitted after 1 s. An attempt that waits for less sends one SYN.
RETRANSMIT_S = 0.95


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Load:
    """All sockets, in one epoll."""

    def __init__(self):
        self.epoll = select.epoll()
        self.by_file = {}
        self.deadlines = []
        self.number = 0

    def watch(self, sock, events, what):
        self.epoll.register(sock, events)
        self.by_file[sock.fileno()] = (sock, what)

    def at(self, when, job):
        self.number += 1
        heapq.heappush(self.deadlines, (when, self.number, job))

    def close(self, sock):
        if sock.fileno() >= 0:
            self.by_file.pop(sock.fileno(), None)
            sock.close()

    def step(self, timeout_s):
        for number, events in self.epoll.poll(timeout_s):
            if number in self.by_file:
                sock, what = self.by_file[number]
                what(sock, events)
        while self.deadlines and self.deadlines[0][0] <= time.monotonic():
            heapq.heappop(self.deadlines)[2]()


class Listener:
    """One address: its sockets, its clients, and what became of each attempt.

    backlog; sockets (above 1: SO_REUSEPORT); accept_per_s (none: all at once; 0: never);
    attempts_per_s to each of `via`; patience_s of an attempt; hold_s of a connection; talk: the client sends
    bytes and the server answers; by_server: the server closes first; defer: TCP_DEFER_ACCEPT, so that a silent
    client stays half open; scan_per_s: SYNs that are ended by a RST; reopen_s: it is closed and made anew.
    """

    def __init__(self, load, spec):
        self.load = load
        self.spec = spec
        self.ip = spec["at"]
        self.port = spec.get("port", 0)
        self.sockets = []
        self.counts = dict.fromkeys(("attempts", "connected", "accepted", "errors", "late", "scans"), 0)
        self.refused = []
        self.done = {"accept": 0, "attempt": 0, "scan": 0, "reopen": 0}
        self.began = None
        self.raw = None
        self.open()

    def open(self):
        for _ in range(self.spec.get("sockets", 1)):
            sock = socket.socket(family(self.ip))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self.spec.get("sockets", 1) > 1:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family(self.ip) == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, self.spec.get("v6only", 0))
            if self.spec.get("defer"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 30)
            sock.bind((self.ip, self.port))
            self.port = sock.getsockname()[1]
            sock.listen(self.spec["backlog"])
            sock.setblocking(False)
            self.sockets.append(sock)

    def due(self, what, per_s, now):
        """How many are due. Those that a stall kept back for more than a second are given up."""
        due = int((now - self.began) * per_s) - self.done[what]
        self.done[what] += due
        return min(due, int(per_s) + 1)

    def step(self, now):
        if self.began is None:
            self.began = now
        spec = self.spec
        if spec.get("reopen_s") and self.due("reopen", 1 / spec["reopen_s"], now):
            for sock in self.sockets:
                sock.close()
            self.sockets.clear()
            self.open()
        rate = spec.get("accept_per_s")
        self.accept(self.due("accept", rate, now) if rate is not None else 1 << 20)
        for _ in range(self.due("attempt", spec.get("attempts_per_s", 0), now)):
            self.attempt()
        if spec.get("scan_per_s"):
            for _ in range(self.due("scan", spec["scan_per_s"], now)):
                self.scan()

    def accept(self, most):
        for sock in self.sockets:
            for _ in range(most):
                try:
                    served, _ = sock.accept()
                except BlockingIOError:
                    break
                except OSError:  # the client has reset it
                    continue
                self.counts["accepted"] += 1
                served.setblocking(False)
                if self.spec.get("by_server"):
                    self.load.close(served)
                else:
                    self.load.watch(served, select.EPOLLIN, self.serve)

    def serve(self, sock, _events):
        try:
            data = sock.recv(4096)
            if data:
                sock.send(data)
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self.load.close(sock)

    def attempt(self):
        spec = self.spec
        via = random.choice(spec.get("via", [self.ip]))
        client = socket.socket(family(via))
        client.setblocking(False)
        self.counts["attempts"] += 1
        began, wall = time.monotonic(), time.time()
        state = {"connected": False}
        error = client.connect_ex((via, self.port))
        if error not in (0, 115):  # EINPROGRESS
            self.counts["errors"] += 1
            client.close()
            return

        def ready(sock, _events):
            if not state["connected"]:
                if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    self.counts["errors"] += 1
                    self.load.close(sock)
                    return
                state["connected"] = True
                self.counts["connected"] += 1
                if time.monotonic() - began > RETRANSMIT_S:
                    self.counts["late"] += 1
                if spec.get("talk"):
                    try:
                        sock.send(b"x" * 100)
                    except OSError:
                        pass
                if spec.get("hold_s", 0) <= 0:
                    self.load.close(sock)
                    return
                self.load.epoll.modify(sock, select.EPOLLIN)
                self.load.at(time.monotonic() + spec["hold_s"], lambda: self.load.close(sock))
                return
            try:
                if sock.recv(4096):
                    return
            except BlockingIOError:
                return
            except OSError:
                pass
            self.load.close(sock)

        def give_up():
            if not state["connected"] and client.fileno() >= 0:
                # It may have connected since the last poll.
                if select.select([], [client], [], 0)[1]:
                    ready(client, 0)
                    return
                self.refused.append(wall)
                if time.monotonic() - began > RETRANSMIT_S:
                    self.counts["late"] += 1
                self.load.close(client)

        self.load.watch(client, select.EPOLLOUT, ready)
        self.load.at(began + spec.get("patience_s", 0.2), give_up)

    def scan(self):
        """A SYN from no socket: the kernel answers its SYN-ACK with a RST."""
        if self.raw is None:
            self.raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
        address = socket.inet_aton(self.ip)
        source = random.randrange(1025, 32000)

        def header(check):
            return struct.pack(
                "!HHIIBBHHH", source, self.port, random.getrandbits(32), 0, 5 << 4, 2, 1024, check, 0
            )

        pseudo = address + address + struct.pack("!BBH", 0, socket.IPPROTO_TCP, 20)
        # The sequence number must be the same in both.
        random_state = random.getstate()
        check = checksum(pseudo + header(0))
        random.setstate(random_state)
        self.raw.sendto(header(check), (self.ip, 0))
        self.counts["scans"] += 1

    def report(self):
        return {"at": self.ip, "port": self.port, **self.counts, "refused": self.refused}


def ends(poll):
    return bool(poll.poll(0)) and not sys.stdin.readline()


def run(listeners):
    load = Load()
    listeners = [Listener(load, spec) for spec in listeners]
    print(json.dumps([[one.ip, one.port] for one in listeners]), flush=True)
    stdin = select.poll()
    stdin.register(sys.stdin, select.POLLIN | select.POLLHUP)
    while not ends(stdin):
        now = time.monotonic()
        for one in listeners:
            one.step(now)
        load.step(TICK_S)
    print(json.dumps([one.report() for one in listeners]), flush=True)


def crowd(spec):
    """Many idle sockets. {"listen": N, "at": IP, "port": P}: N listeners at the ports from P on, which accept all;
    {"open": M, "to": IP, "port": P, "ports": N}: M connections, spread over them."""
    kept = []
    stdin = select.poll()
    stdin.register(sys.stdin, select.POLLIN | select.POLLHUP)
    if "listen" in spec:
        epoll = select.epoll()
        by_file = {}
        for port in range(spec["port"], spec["port"] + spec["listen"]):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((spec["at"], port))
            sock.listen(128)
            sock.setblocking(False)
            epoll.register(sock, select.EPOLLIN)
            by_file[sock.fileno()] = sock
        print(json.dumps(len(by_file)), flush=True)
        while not ends(stdin):
            for number, _ in epoll.poll(0.2):
                try:
                    while True:
                        kept.append(by_file[number].accept()[0])
                except BlockingIOError:
                    pass
    else:
        for number in range(spec["open"]):
            kept.append(socket.create_connection((spec["to"], spec["port"] + number % spec["ports"]), 60))
        print(json.dumps(len(kept)), flush=True)
        sys.stdin.read()
    print(json.dumps(len(kept)), flush=True)


if __name__ == "__main__":
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    config = json.loads(sys.argv[1])
    if "crowd" in config:
        crowd(config["crowd"])
    else:
        run(config["listeners"])
