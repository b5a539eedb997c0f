#!/usr/bin/env bash
# Builds the Java peers once per content: class files and libraries land in each module's target/ folder.
# Run it as often as you like; it does nothing when nothing changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
mkdir -p target
exec 9>target/lock
flock 9
want=$(find pom.xml build.sh ./*/pom.xml ./*/src -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1)
if [[ -f target/built && $(<target/built) == "$want" ]]; then
  complete=yes
  for module in client-suite admin-suite java-peer java-peer5; do
    [[ -d $module/target/classes && -d $module/target/lib ]] || complete=no
  done
  [[ $complete == yes ]] && exit 0
fi
rm -rf target/built ./*/target
log=target/maven.log
for attempt in 1 2 3; do
  # A registry that answers slowly is the one thing here that a second try can mend.
  if mvn -B -q -e package >"$log" 2>&1; then
    echo "$want" >target/built
    exit 0
  fi
  grep -qE 'Could not transfer|Connection (reset|timed out)|Read timed out' "$log" || break
  echo "build.sh: attempt $attempt failed on a download, trying again" >&2
done
cat "$log" >&2
echo "build.sh: Maven failed; the log above is $PWD/$log" >&2
exit 1
