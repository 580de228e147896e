#!/bin/sh
# Makes the runs behind the stored records anew, as tcptoll itself writes them:
#
#     make.sh FOLDER
#
# The program `tcptoll` is the first in PATH; nginx and python3 are needed. It takes about 2 minutes.
# `store` in main.rs shortens what is in FOLDER and stores it next to this file.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1"
cp "$here/study.toml" .

# Which runs: all of them, or those named in ONLY.
wanted() { case " ${ONLY:-$1} " in *" $1 "*) rm -f "$1.jsonl" ;; *) return 1 ;; esac; }

run() {
    name=$1 && shift
    wanted "$name" || return 0
    status=0
    tcptoll "$@" --seed 1 --quiet --out "$name.jsonl" >"$name.txt" 2>"$name.err" || status=$?
    echo "$name: exit status $status"
}

run connect connect --link metro --count 60
run connect-rounds connect --count 40 --concurrency 40 --accept-delay 2ms --backlog 4,4096 \
    --timeout 2500ms --allow-errors 100% --rounds 5
run connect-errors connect --count 60 --concurrency 60 --accept-delay 20ms --backlog 4 --timeout 1s
run connect-nine study connect-2021 --set count=40
run http http --link metro --requests 60
run http-reuse http --reuse keep-alive,server-close,client-close --requests 40 --warmup 8 --rounds 3
run http-rate http --server null --work 20ms --rate 400 --connections 4 --duration 300ms
run http-nothing http --expect-status 404 --requests 30
run http-study study study.toml
run keepalive-window keepalive --mechanism none,tcp --sockets 10 --duration 20ms --warmup 10ms \
    --rounds 3
run keepalive-cut keepalive --sockets 50 --fault cut --duration 300ms --writer off
run keepalive-freeze keepalive --mechanism tcp,heartbeat --sockets 30 --fault freeze \
    --duration 300ms --writer off
run stream-memory stream --memory --window auto,64K --connections 20,100
run messages-sizes messages --message 1,64,4K --nagle on,off --window 256K --congestion cubic \
    --duration 60ms --warmup 20ms --rounds 3
run messages-stall messages --pattern write-write-read --message 100 --nagle on,off --rounds 3 \
    --congestion cubic --duration 600ms --warmup 100ms
run page-keepalive page --rounds 2
run stream-windows stream --link rtt=20ms,rate=20mbit --window auto,16K,256K --congestion cubic \
    --duration 500ms --rounds 3
run accept-queue accept-queue --link rtt=10ms --backlog 16,256 --count 200 --rate 1000 --accept-delay 4ms \
    --timeout 1500ms --rounds 2
run syn-queue syn-queue --half-open 40 --backlog 32 --syncookies 0,1 --count 40 --timeout 1500ms --rounds 1
run time-wait time-wait --port-range 32768-34767 --sources 1,2 --count 2100 --rounds 1
run worker-pool worker-pool --workers 4 --backend-backlog 2 --stall 0,600ms --stall-after 500ms \
    --rate 60 --duration 2s --rounds 1
run visitors visitors --keepalive-timeout 1s,2s --max-workers 12 --rate 4 --pages 2 --think 500ms --memory 256M \
    --duration 2s --warmup 2s --rounds 1

# Against servers outside the lab.
python3 -m http.server --bind 127.0.0.1 18080 >/dev/null 2>&1 &
server=$!
trap 'kill $server' EXIT
while ! python3 -c 'import socket; socket.create_connection(("127.0.0.1", 18080))' 2>/dev/null; do :; done
run connect-target connect --to localhost:18080 --count 40 --concurrency 3
run http-target http --requests 40 --connections 2 --warmup 8 http://localhost:18080/study.toml
run http-errors http --requests 60 --connections 2 --warmup 8 --allow-errors 60% \
    http://localhost:18080/study.toml http://localhost:18080/missing

# One load in three shares, begun together, in a network namespace of its own. The merged record is stored as it is, as
# split.json.
if wanted split; then
    unshare -Urn sh -c '
        ip link set lo up
        python3 -m http.server --bind 127.0.0.1 18080 & server=$!
        until python3 -c "import socket; socket.create_connection((\"127.0.0.1\", 18080))"; do :; done
        at=$(date -u -d "3 seconds" +%FT%TZ)
        for part in 1 2 3; do
            tcptoll http --rate 300 --share $part/3 --duration 1s --connections 4 --rounds 2 --seed 1 --quiet \
                --vantage fra$part --start-at $at --every 4s --out fra$part.jsonl \
                http://127.0.0.1:18080/study.toml & shares="$shares $!"
        done
        wait $shares
        kill $server' >split.txt 2>&1
    tcptoll merge fra1.jsonl fra2.jsonl fra3.jsonl --clock-bound 1ms --out split.jsonl >>split.txt
    sed -i -E 's/"host":"[^"]*"/"host":"web1"/; s/("kernel":"Linux [0-9.]+)[^"]*/\1/; s/("command":\[")[^"]*/\1tcptoll/' \
        split.jsonl
fi

# Stopped by SIGINT once a round is recorded; the second run goes on to its end.
stopped() {
    tcptoll connect --link same-room,metro --count 30 --rounds 3 --seed 1 --quiet \
        --out "$1.jsonl" >"$1.txt" 2>"$1.err" &
    tcptoll=$!
    until [ -e "$1.jsonl" ] && [ "$(wc -l <"$1.jsonl")" -ge 4 ]; do :; done
    kill -INT $tcptoll
    wait $tcptoll || echo "$1: exit status $?"
}
if wanted connect-stopped; then stopped connect-stopped; fi
if wanted connect-resumed; then
    stopped connect-resumed
    tcptoll connect --resume connect-resumed.jsonl --quiet >connect-resumed.txt
fi

# A watch of three listeners in a network namespace of its own. It is stored as it is, as watch.json.
if wanted watch; then
    unshare -Urn sh -c '
        ip link set lo up
        echo "30000 32499" >/proc/sys/net/ipv4/ip_local_port_range
        python3 "$0/watch.py" 60 & load=$!
        sleep 1
        tcptoll watch --no-screen --interval 2s --duration 56s --record watch.jsonl
        kill $load' "$here" >watch.txt 2>&1
    sed -i -E 's/"host":"[^"]*"/"host":"web1"/; s/("kernel":"Linux [0-9.]+)[^"]*/\1/; s/("command":\[")[^"]*/\1tcptoll/' \
        watch.jsonl
fi
