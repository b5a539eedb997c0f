#!/usr/bin/env bash
# Runs one of the Java programs: run.sh client|admin|mqadmin|peer|peer5|store-reader|golden ARGUMENTS...
# The shell is replaced by the JVM, so that whoever starts this holds the JVM itself. JAVA_HEAP (default 256m);
# JAVA_FLAGS replaces the flags that make a JVM start soon, for measurements of one that is to run fast.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
case ${1:-} in
  client) module=client-suite main=io.ferromq.e2e.client.Main ;;
  admin) module=admin-suite main=io.ferromq.e2e.admin.Main ;;
  mqadmin) module=admin-suite main=org.apache.rocketmq.tools.command.MQAdminStartup ;;
  peer) module=java-peer main=io.ferromq.e2e.peer.Peer ;;
  peer5) module=java-peer5 main=io.ferromq.e2e.peer.Peer ;;
  store-reader) module=java-peer main=io.ferromq.e2e.peer.StoreReader ;;
  golden) module=java-peer main=io.ferromq.e2e.peer.Golden ;;
  *)
    echo "run.sh: say which program: client, admin, mqadmin, peer, peer5, store-reader or golden" >&2
    exit 2
    ;;
esac
shift
[[ -d $here/$module/target/lib ]] || {
  echo "run.sh: $module is not built; run $here/build.sh first" >&2
  exit 2
}
read -ra flags <<<"${JAVA_FLAGS:--Xss512k -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xshare:auto}"
exec java "-Xmx${JAVA_HEAP:-256m}" "${flags[@]}" \
  --add-opens java.base/java.nio=ALL-UNNAMED --add-opens java.base/sun.nio.ch=ALL-UNNAMED \
  --add-opens java.base/jdk.internal.ref=ALL-UNNAMED \
  -cp "$here/$module/target/classes:$here/$module/target/lib/*" "$main" "$@"
