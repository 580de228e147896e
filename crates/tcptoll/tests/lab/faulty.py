"""A server that does one thing wrong: `python3 faulty.py FAULT [FILE]`, on port 7777.

One thread serves one connection at a time, and there are more threads than the tests have
connections. What a client does to a connection never ends the server.
"""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

PORT = 7777
THREADS = 64
BODY = b"hello, world\n"
OK = b"HTTP/1.1 200 OK\r\n"
LONG = b"x" * 65536

# What is sent in answer to every request, and whether the connection is then kept, finished (FIN)
# or reset (RST). It is kept wherever the fault must be seen in the bytes alone.
KEEP, FINISH, RESET = "keep", "finish", "reset"
FIXED = {
    "rst-mid-body": (OK + b"Content-Length: 1000\r\n\r\n" + b"x" * 100, RESET),
    "rst-mid-head": (OK + b"Content-Len", RESET),
    "rst-before-head": (b"", RESET),
    "fin-mid-body": (OK + b"Content-Length: 1000\r\n\r\n" + b"x" * 100, FINISH),
    "fin-mid-head": (OK + b"Content-Len", FINISH),
    "fin-before-head": (b"", FINISH),
    "chunk-size-bad": (OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\nhello\r\n0\r\n\r\n", KEEP),
    "chunk-17-digits": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 16 + b"5\r\nhello\r\n0\r\n\r\n",
        KEEP,
    ),
    "chunk-no-crlf": (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n", KEEP),
    "chunk-no-name": (
        OK + b"Transfer-Encoding: chunked\r\n\r\nd;\r\n" + BODY + b"\r\n0\r\n\r\n",
        KEEP,
    ),
    "chunked-not-last": (
        OK + b"Transfer-Encoding: chunked, gzip\r\n\r\nd\r\n" + BODY + b"\r\n0\r\n\r\n",
        FINISH,
    ),
    "lf-in-trailers": (
        OK + b"Transfer-Encoding: chunked\r\n\r\nd\r\n" + BODY + b"\r\n0\r\na: b\n c\n\n",
        KEEP,
    ),
    "chunk-truncated": (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel", FINISH),
    "chunk-without-last": (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", FINISH),
    "silent": (b"", KEEP),
    "body-short": (OK + b"Content-Length: 14\r\n\r\n" + BODY, KEEP),
    "length-2^63-1": (OK + b"Content-Length: 9223372036854775807\r\n\r\n" + BODY, KEEP),
    "length-2^64": (OK + b"Content-Length: 18446744073709551616\r\n\r\n" + BODY, KEEP),
    "length-negative": (OK + b"Content-Length: -5\r\n\r\n" + BODY, KEEP),
    "length-plus": (OK + b"Content-Length: +13\r\n\r\n" + BODY, KEEP),
    "length-two-different": (
        OK + b"Content-Length: 13\r\nContent-Length: 5\r\n\r\n" + BODY,
        KEEP,
    ),
    "length-and-chunked": (
        OK + b"Content-Length: 13\r\nTransfer-Encoding: chunked\r\n\r\nd\r\n" + BODY + b"\r\n0\r\n\r\n",
        KEEP,
    ),
    "length-not-a-number": (OK + b"Content-Length: thirteen\r\n\r\n" + BODY, KEEP),
    "too-many-fields": (OK + b"".join(b"a%d: b\r\n" % n for n in range(6000)) + b"\r\n", KEEP),
    "header-2mb": (OK + b"a: " + b"x" * (2 << 20) + b"\r\nContent-Length: 0\r\n\r\n", KEEP),
    "status-abc": (b"HTTP/1.1 abc OK\r\nContent-Length: 13\r\n\r\n" + BODY, KEEP),
    "status-99": (b"HTTP/1.1 099 OK\r\nContent-Length: 13\r\n\r\n" + BODY, KEEP),
    "version-2.0": (b"HTTP/2.0 200 OK\r\nContent-Length: 13\r\n\r\n" + BODY, KEEP),
    "binary-noise": (bytes((n * 167 + 13) % 256 for n in range(4096)), KEEP),
    "obs-fold": (OK + b"a: b\r\n c\r\nContent-Length: 13\r\n\r\n" + BODY, KEEP),
    "blank-before-colon": (OK + b"Content-Length : 13\r\n\r\n" + BODY, KEEP),
    "nul-in-field": (OK + b"a: b\0c\r\nContent-Length: 13\r\n\r\n" + BODY, KEEP),
    "bare-cr": (OK + b"a: b\rc: d\r\nContent-Length: 13\r\n\r\n" + BODY, KEEP),
    "extra-bytes": (OK + b"Content-Length: 13\r\n\r\n" + BODY + b"and more", KEEP),
    "two-responses": ((OK + b"Content-Length: 13\r\n\r\n" + BODY) * 2, KEEP),
    "chunked-in-1.0": (
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nd\r\n" + BODY + b"\r\n0\r\n\r\n",
        FINISH,
    ),
    "status-500": (b"HTTP/1.1 500 Oh no\r\nContent-Length: 13\r\n\r\n" + BODY, KEEP),
    "wrong-content": (OK + b"Content-Length: 13\r\n\r\nhello, wurld\n", KEEP),
    "steering": (
        b"HTTP/1.1 404 \xff<script>alert(1)</script>\r\nServer: =cmd|' /C calc'!A0<b>\r\n"
        b"Content-Length: 8\r\n\r\n\x1b[2Jgone",
        KEEP,
    ),
    "escape-in-reason": (b"HTTP/1.1 200 \x1b[31mred\r\nContent-Length: 13\r\n\r\n" + BODY, KEEP),
    "ignore-close": (OK + b"Content-Length: 13\r\n\r\n" + BODY, KEEP),
    "hasty": (OK + b"Content-Length: 13\r\n\r\n" + BODY, KEEP),
    "early": (OK + b"Content-Length: 13\r\n\r\n" + BODY, KEEP),
}

served = 0
lock = threading.Lock()


def read_request(fault, connection, reader):
    """Line, fields and content of the next request; None if there is none."""
    line = reader.readline()
    # A handshake of TLS may have a line's end in it, too.
    if not line.endswith(b"\r\n") or line.startswith(b"\x16"):
        return None
    fields = []
    while (field := reader.readline()) not in (b"\r\n", b""):
        name, _, value = field.rstrip(b"\r\n").partition(b": ")
        fields.append((name.decode("latin-1"), value.decode("latin-1")))
    length = next((int(v) for n, v in fields if n.lower() == "content-length"), 0)
    if length and fault == "hasty":
        connection.sendall(FIXED[fault][0])
    content = reader.read(length).decode("latin-1") if length else ""
    return line.decode("latin-1").rstrip(), fields, content


def good(connection, request):
    """The right answer; whether the connection is kept."""
    line, fields, _ = request
    wish = next((v.lower() for n, v in fields if n.lower() == "connection"), "")
    old = line.endswith("HTTP/1.0")
    keep = wish == "keep-alive" if old else wish != "close"
    head = b"HTTP/1.0 200 OK\r\n" if old else OK
    if keep == old:
        head += b"Connection: %s\r\n" % (b"keep-alive" if keep else b"close")
    connection.sendall(head + b"Content-Length: 13\r\n\r\n" + BODY)
    return keep


def endless(connection, before, piece):
    """Sends until the client has had enough."""
    connection.sendall(before)
    while True:
        connection.sendall(piece)


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def until_closed(connection):
    while connection.recv(65536):
        pass


def log(request):
    with lock, open(sys.argv[2], "a") as file:
        file.write(json.dumps(request) + "\n")


def shell(line):
    subprocess.Popen(["sh", "-c", line % {"pid": os.getpid()}])


def answer(fault, connection, request, number):
    """One request's answer; whether the connection is kept. `number`: of this connection."""
    global served
    if fault == "hasty":
        # It has answered before it read the content.
        return request[0].startswith("POST ")
    if fault in FIXED:
        content, then = FIXED[fault]
        connection.sendall(content)
        if then == RESET:
            # What was sent must have arrived: a reset discards what has not.
            time.sleep(0.002)
            reset(connection)
        return then == KEEP
    if fault == "infinite-body":
        endless(connection, OK + b"\r\n", LONG)
    elif fault == "infinite-chunks":
        endless(connection, OK + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + LONG + b"\r\n")
    elif fault == "infinite-extension":
        endless(connection, OK + b"Transfer-Encoding: chunked\r\n\r\n5;", LONG)
    elif fault == "infinite-trailers":
        endless(connection, OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n" * 9000)
    elif fault == "infinite-1xx":
        endless(connection, b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 2000)
    elif fault == "infinite-fields":
        endless(connection, OK, b"a: b\r\n" * 9000)
    elif fault == "infinite-line":
        endless(connection, OK + b"a: ", LONG)
    elif fault == "drip":
        for byte in OK + b"Content-Length: 13\r\n\r\n" + BODY:
            connection.sendall(bytes([byte]))
            time.sleep(0.3)
    elif fault == "slow-body":
        connection.sendall(OK + b"Content-Length: 13\r\n\r\nhello")
        until_closed(connection)
        return False
    elif fault == "three-then-close":
        connection.sendall(OK + b"Content-Length: 13\r\n\r\n" + BODY)
        return number < 3
    elif fault == "lazy-close":
        # Says that it closes, and does not.
        connection.sendall(OK + b"Connection: close\r\nContent-Length: 13\r\n\r\n" + BODY)
        until_closed(connection)
        return False
    elif fault == "until-closed":
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + BODY)
        return False
    else:
        if fault == "log":
            log(request)
        with lock:
            served += 1
            count = served
        if fault == "stopped" and count == 50:
            shell("kill -STOP %(pid)d; sleep 0.3; kill -CONT %(pid)d")
        if fault == "killed" and count == 200:
            os.kill(os.getpid(), signal.SIGKILL)
        return good(connection, request)
    return False


def serve(fault, connection):
    if fault == "close-at-once":
        return
    reader = connection.makefile("rb")
    if fault == "early":
        connection.sendall(FIXED[fault][0])
    number = 0
    while (request := read_request(fault, connection, reader)) is not None:
        number += 1
        if not answer(fault, connection, request, number):
            return
    reader.close()


def run(fault, listener):
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            continue
        with connection:
            try:
                serve(fault, connection)
            except (OSError, ValueError):
                pass


def main():
    fault = sys.argv[1]
    stuck = fault == "not-accepting"
    listener = socket.create_server(("", PORT), backlog=1 if stuck else 4096)
    while stuck:
        time.sleep(60)
    if fault == "tls":
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[2])
        listener = context.wrap_socket(listener, server_side=True)
    for _ in range(THREADS - 1):
        threading.Thread(target=run, args=(fault, listener), daemon=True).start()
    run(fault, listener)


main()
