"""A machine with one planted fault, or the same machine healthy.

It is the network namespace of this process, with real servers, real clients and, where a fault needs one,
a neighbour behind a gateway. It prints `ready PID` and stays until its standard input ends:

    unshare --user --map-root-user --net --pid --fork --kill-child \\
        python3 machines.py MACHINE planted|healthy|mended FOLDER

A fault is a state that is held, or something that is done at a fixed rate. No moment has to be met. Machines of
`faults.py` and `races.py` are also there `mended`: with the same clients, and the first remedy of the fault applied.
"""

import os
import signal
import socket
import sys
import time

import faults
import net
import races
from net import FAR, HOST, background, every, listener, neighbour, patient, read_sysctl, sink, sysctl
from servers import APP, DB, KEPT, REUSED, WEB, apache, ask, established, nginx, start, write


def main():
    name, kind, folder = sys.argv[1:]
    os.chdir(folder)
    net.up("lo")
    if fault := {**faults.MACHINES, **races.MACHINES}.get(name):
        fault(kind)
    else:
        MACHINES[name](kind == "planted")
    # As /proc has it: this process may be in a PID namespace of its own.
    print("ready", os.readlink("/proc/self"), flush=True)
    sys.stdin.read()
    os._exit(0)


def accept_queue_full(planted):
    """Redis that is stuck, with twelve clients for a queue of eight; each more overflows it."""
    file = write("redis.conf", f'bind 127.0.0.1\nport {DB}\nsave ""\ntcp-backlog 8\n')
    redis = start([DB], "redis-server", file)
    if planted:
        os.killpg(redis.pid, signal.SIGSTOP)
    for _ in range(12):
        KEPT.append(net.attempt("127.0.0.1", DB))

    def another():
        late = net.attempt("127.0.0.1", DB)
        time.sleep(0.05)
        late.close()

    every(0.1, another)


def accept_queue_near(planted):
    """nginx whose worker is stuck, with 45 clients in a queue of 50."""
    server = nginx(f"server {{ listen 127.0.0.1:{WEB} backlog=50; return 204; }}", [WEB])
    if planted:
        os.killpg(server.pid, signal.SIGSTOP)
    for _ in range(45):
        KEPT.append(patient("127.0.0.1", WEB))


def workers_too_few(planted):
    """PHP-FPM with one worker, and four clients that each keep theirs."""
    here = os.getcwd()
    file = write(
        "php-fpm.conf",
        f"[global]\nerror_log = {here}/php.error\n[own]\nlisten = 127.0.0.1:9000\n"
        f"listen.backlog = 511\npm = static\npm.max_children = {1 if planted else 8}\n",
    )
    start([9000], "php-fpm8.2", "-F", "-y", file)
    for _ in range(4):
        KEPT.append(patient("127.0.0.1", 9000))


def backlog_over_somaxconn(planted):
    """Redis asks for a queue of 4,096, and the kernel allows 128."""
    sysctl("net.core.somaxconn", 128 if planted else 4096)
    file = write("redis.conf", f'bind 127.0.0.1\nport {DB}\nsave ""\ntcp-backlog 4096\n')
    start([DB], "redis-server", file)


def proxied(upstream, location, application):
    """nginx in front of Apache, and five requests a second."""
    apache(application)
    in_front(upstream, location)


def in_front(upstream, location):
    """nginx in front of what listens on APP, and five requests a second."""
    nginx(
        f"upstream app {{ server 127.0.0.1:{APP}; {upstream} }}\n"
        f"server {{ listen 127.0.0.1:{WEB}; location / {{ proxy_pass http://app; {location} }} }}",
        [WEB],
    )
    every(0.2, lambda: ask(WEB))


def upstream_not_reused(planted):
    """nginx keeps idle connections to Apache, and speaks HTTP/1.0 to it."""
    proxied("keepalive 16;", "" if planted else REUSED, "KeepAliveTimeout 75")


def close_race(planted):
    """nginx keeps idle connections for 60 s, Apache for 5 s."""
    proxied("keepalive 16;", REUSED, f"KeepAliveTimeout {5 if planted else 75}")


def close_race_gunicorn(planted):
    """nginx keeps idle connections for 60 s, gunicorn with threads for 2 s."""
    write("app.py", "def app(environ, start):\n    start('200 OK', [('Content-Length', '0')])\n    return [b'']\n")
    longer = [] if planted else ["--keep-alive", "75"]
    own = ["-k", "gthread", "--worker-tmp-dir", ".", "-b", f"127.0.0.1:{APP}"]
    start([APP], "gunicorn", *own, *longer, "app:app")
    in_front("keepalive 16;", REUSED)


def close_race_node(planted):
    """nginx keeps idle connections for 60 s, Node.js for 5 s."""
    longer = "" if planted else "server.keepAliveTimeout = 75_000;\n"
    file = write(
        "server.js",
        "const server = require('http').createServer((_, answer) => answer.end('ok'));\n"
        f"{longer}server.listen({APP}, '127.0.0.1');\n",
    )
    start([APP], "node", file)
    in_front("keepalive 16;", REUSED)


def close_race_puma(planted):
    """nginx keeps idle connections for 60 s, Puma for 20 s."""
    write("config.ru", "run ->(_) { [200, {'content-length' => '0'}, []] }\n")
    os.mkdir("config")
    write("config/puma.rb", "threads 1, 2\n" + ("" if planted else "persistent_timeout 75\n"))
    start([APP], "puma", "-b", f"tcp://127.0.0.1:{APP}")
    in_front("keepalive 16;", REUSED)


def buffers_over_cap(planted):
    """HAProxy asks for four times the receive buffer that the kernel allows."""
    size = 4 * int(read_sysctl("net.core.rmem_max")) if planted else 131072
    file = write(
        "haproxy.cfg",
        f"global\n  maxconn 200\n  tune.rcvbuf.client {size}\ndefaults\n  mode http\n"
        "  timeout client 20s\n  timeout connect 2s\n  timeout server 10s\n"
        f"frontend web\n  bind 127.0.0.1:{WEB}\n  http-request return status 200\n",
    )
    start([WEB], "haproxy", "-W", "-db", "-f", file)


def local_ports_scarce(planted):
    """190 long-lived connections to one database, out of 200 local ports."""
    if planted:
        sysctl("net.ipv4.ip_local_port_range", "40000 40199")
    neighbour(lambda: sink(FAR, DB))
    for _ in range(190):
        KEPT.append(patient(FAR, DB, keepalive_s=60))


def short_connections(reuse, ports):
    """150 connections a second to a web server elsewhere, that this host closes first.

    Each has its port in TIME-WAIT for 60 s: they need 9,000.
    """
    sysctl("net.ipv4.tcp_tw_reuse", reuse)
    sysctl("net.ipv4.ip_local_port_range", f"20000 {19999 + ports}")
    neighbour(lambda: sink(FAR, WEB))
    every(1 / 150, lambda: patient(FAR, WEB).close())


def port_range_too_small(planted):
    """A range of 4,000 ports, and none is reused."""
    short_connections(0, 4_000 if planted else 30_000)


def tw_reuse_loopback_only(planted):
    """A range of 4,000 ports, and tcp_tw_reuse as the kernel has it: 2, on loopback only."""
    short_connections(2 if planted else 1, 4_000)


def conntrack_near_full(planted):
    """85 % of the table of tracked connections in use; or 1 %."""
    most = int(read_sysctl("net.netfilter.nf_conntrack_max"))
    if most > 600_000:
        raise SystemExit(f"nf_conntrack_max is {most}: filling it takes too much memory for a test")
    net.track(most * (85 if planted else 1) // 100)


def syn_queue_full(planted):
    """50 SYNs a second from hosts that never answer, and a listener with room for 16 of them; or one, and 4,096."""
    device = net.tun("tun0")
    net.up("tun0", HOST + "/24")
    net.sh("ip", "route", "add", net.ROUTE, "dev", "tun0")
    server = listener(HOST, WEB, 16 if planted else 4096)
    KEPT.append(server)
    number = 0

    def one():
        nonlocal number
        number += 1
        source = f"198.51.100.{1 + number // 20000 % 250}"
        os.write(device, net.syn(source, 1024 + number % 20000, HOST, WEB))

    def answers():
        while True:
            os.read(device, 65536)

    background(answers)
    every(0.02 if planted else 1.0, one)


def syn_queue_dropping(planted):
    """The same with SYN cookies off: the SYNs are dropped."""
    sysctl("net.ipv4.tcp_syncookies", 0)
    syn_queue_full(planted)


def keepalive_beyond_nat(planted):
    """Redis that never closes and never probes idle connections, with twenty clients behind a gateway."""
    file = write(
        "redis.conf",
        f'bind {HOST}\nprotected-mode no\nport {DB}\nsave ""\ntimeout 0\n'
        f"tcp-keepalive {0 if planted else 60}\n",
    )

    def clients():
        def stay():
            kept = []
            while len(kept) < 20:
                try:
                    kept.append(socket.create_connection((HOST, DB), source_address=(FAR, 0)))
                except OSError:
                    # Redis does not listen yet.
                    time.sleep(0.01)
            while True:
                time.sleep(3600)

        background(stay)

    neighbour(clients)
    start([DB], "redis-server", file)
    limit = time.monotonic() + 60
    while len(established(DB)) < 20:
        if time.monotonic() > limit:
            raise SystemExit("the clients did not connect")
        time.sleep(0.005)


def retransmissions(planted):
    """Every tenth packet is lost on the way to a server elsewhere."""
    net.lossy_neighbour(lambda: sink(FAR, WEB), 10 if planted else 0)
    clients = [patient(FAR, WEB, keepalive_s=60) for _ in range(20)]
    for client in clients:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def one_each():
        for client in clients:
            client.send(b"x" * 100)

    every(0.02, one_each)


MACHINES = {
    function.__name__.replace("_", "-"): function
    for function in [
        accept_queue_full,
        accept_queue_near,
        workers_too_few,
        backlog_over_somaxconn,
        upstream_not_reused,
        close_race,
        close_race_gunicorn,
        close_race_node,
        close_race_puma,
        buffers_over_cap,
        local_ports_scarce,
        port_range_too_small,
        tw_reuse_loopback_only,
        conntrack_near_full,
        syn_queue_full,
        syn_queue_dropping,
        keepalive_beyond_nat,
        retransmissions,
    ]
}

if __name__ == "__main__":
    main()
