#!/usr/bin/env bash
# End-to-end tests: `make demo` from nothing, again at once, the tests on the same cluster, and its removal.
set -euo pipefail
cd "$(dirname "$0")/.."

# The tests drive this cluster through its rig, also where a container engine answers.
export DEMO_CLUSTER=embedded
unset DEMO_CONTEXT

down() { e2e/demo.sh down || true; }
trap down EXIT

e2e/demo.sh up
e2e/demo.sh up
cargo test -p ferromq-e2e --features cluster --test cluster -- --nocapture
e2e/demo.sh down
trap - EXIT
# Fails when a process, mount, network namespace, link or folder of the cluster is left.
cargo test -p ferromq-e2e --features cluster --test leftovers
