# Two hosts: network namespaces with a veth between them, in a user namespace. All ends with this shell.
# Prints `ready CLIENT SERVER`: a process in each.
set -e
begin() { unshare --net setpriv --pdeathsig KILL sleep 3600 & }
here=$(readlink /proc/self/ns/net)
begin; client=$!
begin; server=$!
for pid in $client $server; do
    while [ "$(readlink /proc/$pid/ns/net)" = "$here" ]; do sleep 0.01; done
done
ip link add c0 netns $client type veth peer name s0 netns $server
within() { nsenter --target "$1" --net ip "$2" "$3" "$4" "$5" "$6"; }
within $client address add 10.78.0.1/24 dev c0
within $server address add 10.78.0.2/24 dev s0
for device in lo c0; do within $client link set dev $device up; done
for device in lo s0; do within $server link set dev $device up; done
echo "ready $client $server"
read -r _
