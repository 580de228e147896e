"""Proxies that keep idle connections for longer than the application server behind them does.

`planted`: the server closes after 2 s (Node.js: its default of 5 s), the proxy after 60 s. `mended` and `healthy`: the
server closes after 70 s. Nobody asks: whoever counts failures is the client.
"""

import functools
import os

from faults import gunicorn, of
from servers import APP, REUSED, WEB, nginx, start, write

LONG_S = 70


def behind_gunicorn(kind):
    seconds = of(kind, 2, LONG_S, LONG_S)
    gunicorn("--worker-class", "gthread", "--workers", 1, "--threads", 8, "--keep-alive", seconds)


def behind_uvicorn(kind):
    write(
        "asgi.py",
        "async def app(scope, receive, send):\n"
        "    while scope['type'] == 'lifespan':\n"
        "        if (await receive())['type'].endswith('shutdown'):\n            return\n"
        "        await send({'type': 'lifespan.startup.complete'})\n"
        "    while (await receive()).get('more_body'):\n        pass\n"
        "    headers = [(b'content-length', b'3')]\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': headers})\n"
        "    await send({'type': 'http.response.body', 'body': b'ok\\n'})\n",
    )
    words = ["-m", "uvicorn", "asgi:app", "--port", APP, "--log-level", "warning"]
    words += ["--timeout-keep-alive", of(kind, 2, LONG_S, LONG_S)]
    start([APP], "/usr/bin/python3", *map(str, words))


def behind_node(kind):
    longer = of(kind, "", *2 * [f"server.keepAliveTimeout = {1000 * LONG_S};\n"])
    text = (
        "const server = require('http').createServer((request, response) => {\n"
        "  request.resume();\n  request.on('end', () => response.end('ok\\n'));\n});\n"
        f"{longer}server.listen({APP}, '127.0.0.1');\n"
    )
    start([APP], "node", write("server.js", text))


def behind_puma(kind):
    write("config.ru", "run ->(env) { env['rack.input'].read; [200, {}, [\"ok\\n\"]] }\n")
    # A thread waits for 0.2 s for a second request.
    text = f"bind 'tcp://127.0.0.1:{APP}'\nthreads 64, 64\nworkers 0\n"
    text += f"persistent_timeout {of(kind, 2, LONG_S, LONG_S)}\n"
    start([APP], "puma", "-C", write("puma.rb", text))


HOME = "/usr/share/tomcat10"


def behind_tomcat(kind):
    for folder in ["conf", "logs", "temp", "work", "files"]:
        os.makedirs(folder)
    write("files/index.html", "ok\n")
    write(
        "conf/server.xml",
        f'<Server port="-1"><Service name="own"><Connector port="{APP}" address="127.0.0.1"'
        f' maxKeepAliveRequests="-1" keepAliveTimeout="{1000 * of(kind, 2, LONG_S, LONG_S)}"/>'
        '<Engine name="own" defaultHost="localhost"><Host name="localhost">'
        f'<Context path="" docBase="{os.getcwd()}/files">'
        '<JarScanner scanClassPath="false"/></Context></Host></Engine></Service></Server>\n',
    )
    write(
        "conf/web.xml",
        '<web-app xmlns="https://jakarta.ee/xml/ns/jakartaee" version="5.0"><servlet>'
        "<servlet-name>files</servlet-name>"
        "<servlet-class>org.apache.catalina.servlets.DefaultServlet</servlet-class></servlet>"
        "<servlet-mapping><servlet-name>files</servlet-name><url-pattern>/</url-pattern>"
        "</servlet-mapping><welcome-file-list><welcome-file>index.html</welcome-file>"
        "</welcome-file-list></web-app>\n",
    )
    places = [f"-Dcatalina.home={HOME}", f"-Dcatalina.base={os.getcwd()}"]
    classes = f"{HOME}/bin/bootstrap.jar:{HOME}/bin/tomcat-juli.jar"
    main = "org.apache.catalina.startup.Bootstrap"
    start([APP], "java", "-Xmx128m", "-Djava.net.preferIPv4Stack=true", "-cp", classes, *places, main, "start")


def before_nginx(_):
    nginx(
        f"upstream app {{ server 127.0.0.1:{APP}; keepalive 256; }}\n"
        f"server {{ listen 127.0.0.1:{WEB}; location / {{ proxy_pass http://app; {REUSED} }} }}",
        [WEB],
    )


def before_haproxy(_):
    file = write(
        "haproxy.cfg",
        "global\n  maxconn 1000\ndefaults\n  mode http\n  timeout client 30s\n  timeout connect 2s\n"
        f"  timeout server 30s\nfrontend web\n  bind 127.0.0.1:{WEB}\n  default_backend app\n"
        "backend app\n  http-reuse always\n"
        f"  server app 127.0.0.1:{APP} pool-purge-delay 60s pool-max-conn -1\n",
    )
    start([WEB], "haproxy", "-W", "-db", "-f", file)


def both(server, proxy, kind):
    server(kind)
    proxy(kind)


SERVERS = {
    "gunicorn": behind_gunicorn,
    "uvicorn": behind_uvicorn,
    "node": behind_node,
    "puma": behind_puma,
    "tomcat": behind_tomcat,
}
PROXIES = {"nginx": before_nginx, "haproxy": before_haproxy}

MACHINES = {
    f"race-{server}-{proxy}": functools.partial(both, SERVERS[server], PROXIES[proxy])
    for server in SERVERS
    for proxy in PROXIES
}
