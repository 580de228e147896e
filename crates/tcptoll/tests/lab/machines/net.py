"""What the machines stand on: a routed neighbour, a path that loses packets, listeners and clients.

Everything is in the network namespace of this process, and in another one that it makes.
"""

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import threading
import time

HOST = "192.0.2.1"
GATEWAY = "192.0.2.2"
# Not of the machine's own subnet: it is reached through the gateway.
FAR = "198.51.100.7"
ROUTE = "198.51.100.0/24"

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN_NO_PI = 0x1001


def sh(*words):
    """Runs a command; its failure is ours."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: {done.stdout.strip()}")


def sysctl(name, value):
    with open("/proc/sys/" + name.replace(".", "/"), "w") as file:
        file.write(str(value))


def read_sysctl(name):
    with open("/proc/sys/" + name.replace(".", "/")) as file:
        return file.read().strip()


def up(device, address=None):
    if address:
        sh("ip", "address", "add", address, "dev", device)
    sh("ip", "link", "set", device, "up")


def own_network():
    if LIBC.unshare(CLONE_NEWNET) != 0:
        raise SystemExit("unshare(CLONE_NEWNET): " + os.strerror(ctypes.get_errno()))
    up("lo")


def tun(name):
    fd = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN_NO_PI))
    return fd


def neighbour(serve):
    """Another host behind a gateway; `serve()` runs there and must return once it listens."""
    said, say = os.pipe()
    go, let = os.pipe()
    child = os.fork()
    if child == 0:
        own_network()
        os.write(say, b".")
        os.read(go, 1)
        up("veth1", GATEWAY + "/24")
        up("lo", FAR + "/32")
        serve()
        os.write(say, b".")
        while True:
            time.sleep(3600)
    os.read(said, 1)
    sh("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1", "netns", str(child))
    up("veth0", HOST + "/24")
    sh("ip", "route", "add", ROUTE, "via", GATEWAY)
    os.write(let, b".")
    if os.read(said, 1) != b".":
        raise SystemExit("the neighbour ended")


def lossy_neighbour(serve, lost_of):
    """The same over a path that loses each `lost_of`-th packet with data towards it; 0: none."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        own_network()
        far = tun("tun0")
        up("tun0", GATEWAY + "/24")
        up("lo", FAR + "/32")
        serve()
        socket.send_fds(theirs, [b"."], [far])
        while True:
            time.sleep(3600)
    _, [far], _, _ = socket.recv_fds(ours, 1, 1)
    near = tun("tun0")
    up("tun0", HOST + "/24")
    sh("ip", "route", "add", ROUTE, "via", GATEWAY)

    def carry(source, to, lost_of):
        count = 0
        while True:
            packet = os.read(source, 65536)
            # Shorter ones are acknowledgments and handshakes.
            if lost_of and len(packet) > 80:
                count += 1
                if count % lost_of == 0:
                    continue
            os.write(to, packet)

    background(carry, near, far, lost_of)
    background(carry, far, near, 0)


def background(run, *words):
    threading.Thread(target=run, args=words, daemon=True).start()


def every(seconds, do):
    """Does something at a fixed rate; what a busy machine missed is made up for."""
    def run():
        due = time.monotonic()
        while True:
            do()
            due += seconds
            time.sleep(max(0.0, due - time.monotonic()))

    background(run)


def listener(address, port, backlog):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    server.listen(backlog)
    return server


def sink(address, port):
    """A server that reads and never closes first."""
    answering(address, port, None)


def answering(address, port, answer):
    """A server that answers each request of a connection with the same bytes; None: it never answers."""
    server = listener(address, port, 1024)

    def one(connection):
        try:
            while connection.recv(65536):
                if answer:
                    connection.sendall(answer)
        except OSError:
            pass
        connection.close()

    def accept():
        while True:
            background(one, server.accept()[0])

    background(accept)


def patient(address, port, keepalive_s=None):
    """A connection that stays."""
    client = socket.socket()
    if keepalive_s:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, keepalive_s)
    client.connect((address, port))
    return client


def attempt(address, port):
    """A SYN, whatever comes of it."""
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex((address, port))
    return client


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def syn(source, source_port, to, port):
    """An IPv4 packet with a SYN."""
    ends = socket.inet_aton(source) + socket.inet_aton(to)
    tcp = struct.pack("!HHIIBBHHH", source_port, port, 1, 0, 5 << 4, 2, 64240, 0, 0)
    pseudo = ends + struct.pack("!BBH", 0, 6, len(tcp))
    tcp = tcp[:16] + struct.pack("!H", checksum(pseudo + tcp)) + tcp[18:]
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + ends
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + tcp


def attribute(kind, data, nested=False):
    """An attribute of a netlink message."""
    length = 4 + len(data)
    kind |= 0x8000 if nested else 0
    return struct.pack("HH", length, kind) + data + b"\0" * (-length % 4)


def firewall():
    """A rule of nftables that looks at the state of connections, so that the kernel tracks them."""
    number = struct.Struct("!I").pack

    def text(kind, name):
        return attribute(kind, name.encode() + b"\0")

    def message(kind, flags, body, family=socket.AF_INET, of=0):
        body = struct.pack("!BBH", family, 0, of) + body
        return struct.pack("IHHII", 16 + len(body), kind, flags, 0, 0) + body

    hook = attribute(1, number(1)) + attribute(2, number(0))
    state = text(1, "ct") + attribute(2, attribute(1, number(1)) + attribute(2, number(0)), True)
    rule = text(1, "own") + text(2, "input") + attribute(4, attribute(1, state, True), True)
    chain = text(1, "own") + text(3, "input") + attribute(4, hook, True) + text(7, "filter")
    # NFT_MSG_NEWTABLE, NEWCHAIN and NEWRULE, between the ends of a batch: NLM_F_REQUEST, NLM_F_CREATE, NLM_F_ACK.
    batch = message(0x10, 1, b"", 0, 10)
    for kind, body in [(0xA00, text(1, "own")), (0xA03, chain), (0xA06, rule)]:
        batch += message(kind, 0x405, body)
    batch += message(0x11, 1, b"", 0, 10)
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
    link.bind((0, 0))
    link.send(batch)
    acknowledged = 0
    while acknowledged < 3:
        answer = link.recv(65536)
        while answer:
            length, kind = struct.unpack_from("IH", answer)
            error = -struct.unpack_from("i", answer, 16)[0]
            if error:
                raise SystemExit("nftables: " + os.strerror(error))
            acknowledged += 1
            answer = answer[(length + 3) & ~3 :]


def track(connections, assured=False):
    """Puts entries into the table of tracked connections (ctnetlink, IPCTNL_MSG_CT_NEW).

    Those that are not assured make room for others.
    """
    def tuple_of(kind, source, to, source_port, port):
        ip = attribute(1, socket.inet_aton(source)) + attribute(2, socket.inet_aton(to))
        proto = attribute(1, b"\6")
        proto += attribute(2, struct.pack("!H", source_port)) + attribute(3, struct.pack("!H", port))
        return attribute(kind, attribute(1, ip, True) + attribute(2, proto, True), True)

    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
    link.bind((0, 0))
    batch, sent = b"", 0
    for number in range(connections):
        near = socket.inet_ntoa(struct.pack("!I", 0x0A000000 + number // 50000))
        port = 1024 + number % 50000
        # ESTABLISHED, which times out after an hour here.
        state = attribute(4, attribute(1, attribute(1, b"\3"), True), True)
        body = struct.pack("!BBH", socket.AF_INET, 0, 0)
        body += tuple_of(1, near, FAR, port, 80) + tuple_of(2, FAR, near, 80, port)
        body += attribute(7, struct.pack("!I", 3600)) + state
        if assured:
            # IPS_SEEN_REPLY, IPS_ASSURED and IPS_CONFIRMED.
            body += attribute(3, struct.pack("!I", 14))
        # NLM_F_REQUEST, NLM_F_CREATE and NLM_F_EXCL; the last of a batch asks for an acknowledgment.
        last = number == connections - 1 or number % 100 == 99
        flags = 0x601 | (4 if last else 0)
        batch += struct.pack("IHHII", 16 + len(body), 0x100, flags, number, 0) + body
        if last:
            link.send(batch)
            batch = b""
            answer = link.recv(65536)
            error = -struct.unpack_from("i", answer, 16)[0]
            if error:
                raise SystemExit("ctnetlink: " + os.strerror(error))
