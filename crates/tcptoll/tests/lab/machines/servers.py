"""The servers that the machines run: real programs, each with the configuration that a machine gives it."""

import os
import socket
import subprocess
import sys
import time

WEB, APP, DB = 8080, 8081, 6379
KEPT = []
# In a location of nginx: its requests reuse connections to the upstream.
REUSED = 'proxy_http_version 1.1; proxy_set_header Connection "";'


def write(name, text):
    with open(name, "w") as file:
        file.write(text)
    return os.path.abspath(name)


def start(ports, *command):
    """Starts a server as an ordinary user of a user namespace of its own, and waits until it listens."""
    ordinary = ["unshare", "--user", "--map-user=33", "--map-group=33"]
    log = open(command[0] + ".log", "w")
    environment = dict(os.environ, PATH="/usr/sbin:/usr/bin:/sbin:/bin")
    server = subprocess.Popen(
        [*ordinary, *command],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=environment,
        start_new_session=True,
    )
    limit = time.monotonic() + 60
    for port in ports:
        while not listens(port):
            if server.poll() is not None or time.monotonic() > limit:
                raise SystemExit(f"{command[0]}: {server.poll()}: {open(log.name).read()}")
            time.sleep(0.005)
    return server


def sockets(port, state):
    """Sockets of a local port, asked of the kernel, so that no connection is used up."""
    with open("/proc/self/net/tcp") as file:
        lines = [line.split() for line in file]
    return [line for line in lines[1:] if line[3] == state and line[1].endswith(f":{port:04X}")]


def listens(port):
    return bool(sockets(port, "0A"))


def established(port):
    return sockets(port, "01")


def nginx(text, ports):
    here = os.getcwd()
    paths = " ".join(
        f"{name}_temp_path {here};" for name in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    )
    file = write(
        "nginx.conf",
        f"worker_processes 1;\npid {here}/nginx.pid;\nevents {{ worker_connections 900; }}\n"
        f"http {{\naccess_log off;\n{paths}\n{text}\n}}\n",
    )
    return start(ports, "nginx", "-c", file, "-e", here + "/nginx.error", "-g", "daemon off;")


def apache(text, mpm="event"):
    here, modules = os.getcwd(), "/usr/lib/apache2/modules"
    write("index.html", "hello\n")
    file = write(
        "apache2.conf",
        f"ServerRoot {here}\nServerName localhost\nPidFile {here}/apache.pid\n"
        f"ErrorLog {here}/apache.error\nDocumentRoot {here}\n"
        f"LoadModule mpm_{mpm}_module {modules}/mod_mpm_{mpm}.so\n"
        f"LoadModule authz_core_module {modules}/mod_authz_core.so\n"
        f"LoadModule dir_module {modules}/mod_dir.so\nListen 127.0.0.1:{APP}\n{text}\n",
    )
    start([APP], "apache2", "-f", file, "-DFOREGROUND")


def ask(port):
    """One request on a connection of its own, which the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = b""
        while part := client.recv(65536):
            answer += part
    if b" 200 " not in answer.split(b"\r\n", 1)[0]:
        print("a request failed:", answer[:200], file=sys.stderr, flush=True)
