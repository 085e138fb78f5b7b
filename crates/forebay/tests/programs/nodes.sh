#!/bin/bash
# Runs a command on the first of several nodes. Each has a host name, a network, a /dev/shm and System V memory of its own, and shares
# the other file systems, as the nodes of a cluster share a parallel one. For root.
#
# usage: nodes.sh DIR COUNT COMMAND...
#
# In DIR: `nodes`, a line for each node with its address (10.77.0.1 ...) and the process that holds it; `remote HOST COMMAND`, which starts
# a command there as ssh does; `fail`, which ends all programs on the node on which it runs.
set -euo pipefail
dir=$1 count=$2
shift 2

holders=() networks=" "
# Launchers put what they start into groups of their own, and wait for nodes that are gone.
end() {
    local process
    for process in /proc/[0-9]*; do
        case $networks in
            *" $(readlink "$process/ns/net") "*) kill -KILL "${process#/proc/}" 2>/dev/null || true ;;
        esac
    done
    wait 2>/dev/null
}
trap end EXIT
trap 'exit 124' TERM

hold() {
    local kind=${1#--}
    unshare "$@" sleep infinity &
    holders+=($!)
    while [ "$(readlink "/proc/$!/ns/$kind")" = "$(readlink "/proc/self/ns/$kind")" ]; do :; done
    until [ "$(<"/proc/$!/comm")" = sleep ]; do :; done
    networks+="$(readlink "/proc/$!/ns/net") "
}
into() {
    local holder=$1
    shift
    nsenter --target "$holder" --net --uts --ipc --mount -- "$@"
}

hold --net
switch=${holders[0]}
nsenter --target "$switch" --net ip link add switch type bridge
nsenter --target "$switch" --net ip link set switch up
for n in $(seq "$count"); do
    hold --net --uts --ipc --mount
    node=${holders[$n]}
    ip link add "fb$n-$$" type veth peer name eth0 netns "$node"
    ip link set "fb$n-$$" netns "$switch"
    nsenter --target "$switch" --net ip link set "fb$n-$$" master switch up
    into "$node" hostname "node$n"
    into "$node" ip address add "10.77.0.$n/24" dev eth0
    into "$node" ip link set eth0 up
    into "$node" ip link set lo up
    into "$node" mount -t tmpfs none /dev/shm
    echo "10.77.0.$n $node"
done >"$dir/nodes"

cat >"$dir/remote" <<REMOTE
#!/bin/sh
holder=\$(sed -n "s/^\$1 //p" '$dir/nodes')
shift
exec nsenter --target "\$holder" --net --uts --ipc --mount -- sh -c "cd '$PWD' && exec \$*"
REMOTE
cat >"$dir/fail" <<FAIL
#!/bin/bash
# The namespace stays, so that the kernel can close the connections.
for process in /proc/[0-9]*; do
    pid=\${process#/proc/}
    [ "\$pid" = \$\$ ] || grep -q " \$pid\$" '$dir/nodes' ||
        [ "\$(readlink "\$process/ns/net")" != "\$(readlink /proc/self/ns/net)" ] || kill -KILL "\$pid"
done
FAIL
chmod +x "$dir/remote" "$dir/fail"
into "${holders[1]}" sh -c 'cd "$1" && shift && "$@"' sh "$PWD" "$@" &
wait $!
