# The first process of a node: builds the node's own view of the file system, then stays as the one that reaps.
# It runs inside fresh network, mount, pid and host-name namespaces, so every mount here ends with the node.
# Arguments: host name, and the host's folders for /var/lib, /var/log, the tools and the configuration.
set -eu
name=$1 lib=$2 log=$3 tools=$4 etc=$5 pause=$6

mount -t proc proc /proc
echo "$name" >/proc/sys/kernel/hostname
mount -t tmpfs -o mode=755 ferromq-rig /run
mkdir -p /run/lock /run/rig/lib /run/rig/log /run/rig/tools /run/rig/etc
# All four are reached before anything covers /var, in case they lie below it.
mount --bind "$lib" /run/rig/lib
mount --bind "$log" /run/rig/log
mount --bind "$tools" /run/rig/tools
mount --bind "$etc" /run/rig/etc
mount --bind /run/rig/log /var/log
mount --bind /run/rig/lib /var/lib

echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet
ip link set lo up
: >/run/rig/ready
exec "/run/rig/tools/$pause"
