"""Runs commands where a name has other addresses each time it is asked for.

`unshare -Urmn python3 names.py FOLDER COMMANDS`: COMMANDS is a JSON list of argument lists. They run
one after the other in a network of their own, whose resolver is a DNS server in this program.
Prints a JSON list with, for each command, its status and output, how many questions of type A the
DNS server got, by name, and on which addresses the servers here accepted connections.
"""

import http.server
import json
import os
import queue
import socket
import socketserver
import struct
import subprocess
import sys
import threading
from collections import Counter

TYPE_A, NAME_ERROR = 1, 3
TCP_PORT, HTTP_PORT = 7001, 8080
EACH = 3  # addresses in one answer
MARK = "127.0.0.1"  # where only this program itself connects to
questions, accepted, marks = Counter(), [], queue.Queue()


def mine(path, text):
    """Puts a file of this text in the place of one of the machine, for this namespace alone."""
    own = os.path.join(sys.argv[1], os.path.basename(path))
    with open(own, "w") as file:
        file.write(text)
    subprocess.run(["mount", "--bind", own, path], check=True)


def addresses(name):
    """Addresses of a name; None: there is no such name."""
    asked = questions[name]
    if name == "moving.test":
        # No two answers have an address in common.
        return [f"127.0.{asked}.{last}" for last in range(2, 2 + EACH)]
    if name == "public.test":
        return ["192.0.2.1", "192.0.2.2"]
    return None


def answer(query):
    at, labels = 12, []
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode())
        at += 1 + length
    name, end = ".".join(labels).lower(), at + 5
    (kind,) = struct.unpack("!H", query[at + 1 : at + 3])
    if kind == TYPE_A:
        questions[name] += 1
    found = addresses(name)
    records = [
        b"\xc0\x0c" + struct.pack("!HHIH", TYPE_A, 1, 0, 4) + socket.inet_aton(address)
        for address in (found or [])
        if kind == TYPE_A
    ]
    flags = 0x8180 | (NAME_ERROR if found is None else 0)
    head = query[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0)
    return head + query[12:end] + b"".join(records)


def serve_names(server):
    while True:
        query, client = server.recvfrom(4096)
        server.sendto(answer(query), client)


class Silent(socketserver.BaseRequestHandler):
    def handle(self):
        try:
            while self.request.recv(4096):
                pass
        except OSError:
            pass


class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        close = self.headers.get("Connection", "").lower() == "close"
        self.send_response(200)
        self.send_header("Content-Length", "2")
        if close:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass


class Listener(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads, request_queue_size = True, True, 512

    def get_request(self):
        request, client = super().get_request()
        address = request.getsockname()[0]
        marks.put(address) if address == MARK else accepted.append(address)
        return request, client

    def handle_error(self, *_):
        pass


def all_accepted():
    """Waits until every connection that was made before is accepted: listeners accept in order."""
    for port in (TCP_PORT, HTTP_PORT):
        with socket.create_connection((MARK, port)):
            marks.get()


def main():
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    mine("/etc/resolv.conf", "nameserver 127.0.0.1\noptions ndots:0 timeout:5 attempts:1\n")
    mine("/etc/nsswitch.conf", "hosts: dns\n")
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 53))
    threading.Thread(target=serve_names, args=(names,), daemon=True).start()
    for port, handler in [(TCP_PORT, Silent), (HTTP_PORT, Web)]:
        server = Listener(("0.0.0.0", port), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    ran = []
    for command in json.loads(sys.argv[2]):
        questions_before, accepted_before = questions.copy(), len(accepted)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        all_accepted()
        ran.append({
            "status": done.returncode,
            "stdout": done.stdout,
            "stderr": done.stderr,
            "questions": questions - questions_before,
            "accepted": sorted(set(accepted[accepted_before:])),
        })
    print(json.dumps(ran))


main()
