"""Machines with one fault that several commands see, each also `mended`: with the same clients, and its first remedy.

`planted`, `healthy` and `mended` differ in one setting or in what the clients do; each machine says in which.
"""

import os
import socket
import time

import net
from net import FAR, background, every, neighbour, patient, sysctl
from servers import APP, DB, KEPT, WEB, apache, nginx, start, write

# How long a client waits for an answer, s.
PATIENCE_S = 10
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"


def of(kind, planted, healthy, mended):
    """The setting of this kind of machine."""
    return {"planted": planted, "healthy": healthy, "mended": mended}[kind]


def request(port, address="127.0.0.1"):
    """A client with one request: it gives up in time, and always closes."""
    try:
        with socket.create_connection((address, port), timeout=PATIENCE_S) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            while client.recv(65536):
                pass
    except OSError:
        pass


def clients(per_s, port, address="127.0.0.1"):
    """Clients that come at a fixed rate, whether or not earlier ones were answered."""
    every(1 / per_s, lambda: background(request, port, address))


def gunicorn(*options, work="pass"):
    write(
        "app.py",
        "import time\n\n\ndef app(environ, start_response):\n"
        "    environ['wsgi.input'].read()\n"
        f"    {work}\n"
        "    start_response('200 OK', [('Content-Length', '3')])\n    return [b'ok\\n']\n",
    )
    start([APP], "gunicorn", "--bind", f"127.0.0.1:{APP}", *map(str, options), "app:app")


def lasting_overload(kind):
    """A worker that takes 0.2 s a request, and 20 clients a second; mended: eight workers. Healthy: two clients."""
    workers = of(kind, 1, 1, 8)
    gunicorn("--workers", workers, "--backlog", 16, work="time.sleep(0.2)")
    clients(of(kind, 20, 2, 20), APP)


PERIOD_S, PAUSE_S = 1.3, 0.25

PAUSING = f"""
import socket, sys, threading, time

HEAD = b"HTTP/1.1 200 OK\\r\\nContent-Length: 3\\r\\nConnection: close\\r\\n\\r\\n"


def answer(client):
    try:
        client.settimeout(5)
        if client.recv(65536):
            client.sendall(HEAD + b"ok\\n")
    except OSError:
        pass
    client.close()


server = socket.create_server(("127.0.0.1", {APP}), backlog=int(sys.argv[1]))
while True:
    client = server.accept()[0]
    phase = time.monotonic() % {PERIOD_S}
    if phase < {PAUSE_S}:
        time.sleep({PAUSE_S} - phase)
    threading.Thread(target=answer, args=[client], daemon=True).start()
"""


def bursts(kind):
    """A program that pauses for 0.25 s every 1.3 s, when 100 clients come; mended: a backlog of 4,096, not 16.

    Healthy: one client comes.
    """
    start([APP], "/usr/bin/python3", write("pausing.py", PAUSING), str(of(kind, 16, 16, 4096)))

    def burst():
        time.sleep(-time.monotonic() % PERIOD_S)
        for _ in range(of(kind, 100, 1, 100)):
            background(request, APP)

    every(PERIOD_S, burst)


PHP = """<?php
$limit = LIMIT;
$backend = stream_socket_client("tcp://127.0.0.1:PORT", $code, $text, $limit);
stream_set_timeout($backend, (int) $limit, (int) (1e6 * ($limit - (int) $limit)));
fwrite($backend, "PING\\r\\n");
echo fgets($backend) ?: "from the cache\\n";
"""


def stuck_pool(kind):
    """PHP-FPM with two workers that wait for a backend; it never answers. Mended: for 0.2 s. Healthy: it answers."""
    answer = of(kind, None, b"+PONG\r\n", None)
    net.answering("127.0.0.1", DB, answer)
    here = os.getcwd()
    file = write(
        "php-fpm.conf",
        f"[global]\nerror_log = {here}/php.error\n[own]\nlisten = 127.0.0.1:9000\n"
        "listen.backlog = 511\npm = static\npm.max_children = 2\n",
    )
    script = PHP.replace("LIMIT", of(kind, "60.0", "60.0", "0.2")).replace("PORT", str(DB))
    script = write("index.php", script)
    start([9000], "php-fpm8.2", "-F", "-y", file)
    parameters = {
        "SCRIPT_FILENAME": script,
        "REQUEST_METHOD": "$request_method",
        "QUERY_STRING": "$query_string",
        "CONTENT_LENGTH": "$content_length",
        "CONTENT_TYPE": "$content_type",
    }
    lines = "".join(f"fastcgi_param {name} {value};\n" for name, value in parameters.items())
    nginx(
        f"server {{ listen 127.0.0.1:{WEB}; location / {{\n{lines}fastcgi_pass 127.0.0.1:9000; }} }}",
        [WEB],
    )
    clients(2, WEB)


def ports_out(kind):
    """190 connections to one server, out of 200 local ports. Mended: ten, which are reused. Healthy: ten."""
    sysctl("net.ipv4.ip_local_port_range", "40000 40199")
    neighbour(lambda: net.answering(FAR, WEB, OK))
    for _ in range(of(kind, 190, 10, 10)):
        KEPT.append(patient(FAR, WEB, keepalive_s=60))


LEAKING = f"""
import socket, sys, threading

CLOSES = sys.argv[1] == "closes"
HEAD = b"HTTP/1.1 200 OK\\r\\nContent-Length: 3\\r\\n\\r\\n"
KEPT = []


def serve(client):
    while client.recv(65536):
        client.sendall(HEAD + b"ok\\n")
    if CLOSES:
        client.close()
    else:
        KEPT.append(client)


server = socket.create_server(("127.0.0.1", {APP}), backlog=1024)
while True:
    threading.Thread(target=serve, args=[server.accept()[0]], daemon=True).start()
"""


def leak(kind):
    """A program that does not close a connection that its peer closed; ten clients a second. Mended: it closes."""
    closes = of(kind, "leaks", "closes", "closes")
    start([APP], "/usr/bin/python3", write("leaking.py", LEAKING), closes)

    def client():
        with socket.create_connection(("127.0.0.1", APP)) as one:
            one.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            one.recv(65536)

    every(0.1, client)


def workers_held(kind):
    """Apache prefork with ten workers, held by ten visitors who ask every ten seconds, and two more a second.

    Mended: KeepAliveTimeout 1, not 15. Healthy: three visitors.
    """
    modules = "/usr/lib/apache2/modules"
    apache(
        f"LoadModule authz_host_module {modules}/mod_authz_host.so\nServerLimit 10\nStartServers 10\n"
        "MinSpareServers 10\nMaxSpareServers 10\nMaxRequestWorkers 10\n"
        f"KeepAlive On\nMaxKeepAliveRequests 0\nKeepAliveTimeout {of(kind, 15, 15, 1)}",
        mpm="prefork",
    )

    def visitor(pause_s):
        client = None
        while True:
            try:
                client = client or socket.create_connection(("127.0.0.1", APP), timeout=PATIENCE_S)
                client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                if not client.recv(65536):
                    raise ConnectionResetError
            except OSError:
                client = None
                continue
            # All are there at once, and come back one after another.
            time.sleep(pause_s)
            pause_s = 10

    for number in range(of(kind, 10, 3, 10)):
        background(visitor, 1 + number)
    time.sleep(1)
    clients(2, APP)


def tracked(percent):
    """This share of the table of tracked connections in use, a firewall that tracks, and ten clients a second.

    A larger table is the remedy. Its limit is the kernel's own, which no namespace may change. So there are fewer entries
    where it is mended.
    """
    most = int(net.read_sysctl("net.netfilter.nf_conntrack_max"))
    if most > 600_000:
        raise SystemExit(f"nf_conntrack_max is {most}: filling it takes too much memory for a test")
    net.answering("127.0.0.1", APP, OK)
    net.track(most * percent // 100, assured=True)
    net.firewall()
    clients(10, APP)


def conntrack_ninety(kind):
    """90 % of the table in use; mended and healthy: 1 %."""
    tracked(of(kind, 90, 1, 1))


def conntrack_full(kind):
    """All of it: new connections are dropped."""
    tracked(of(kind, 100, 1, 1))


MACHINES = {
    function.__name__.replace("_", "-"): function
    for function in [
        lasting_overload,
        bursts,
        stuck_pool,
        ports_out,
        leak,
        workers_held,
        conntrack_ninety,
        conntrack_full,
    ]
}
