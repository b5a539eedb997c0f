#!/usr/bin/env bash
# End-to-end tests: `make demo` from nothing, again at once, the tests on the same cluster, and its removal.
set -euo pipefail
cd "$(dirname "$0")/.."

# The tests drive this cluster through its rig, also where a container engine answers.
export DEMO_CLUSTER=embedded
unset DEMO_CONTEXT
source e2e/rig/versions.env
# For its kubectl, where the machine has none.
export PATH=$PATH:${XDG_CACHE_HOME:-$HOME/.cache}/ferromq/kubernetes-$KUBERNETES

down() { e2e/demo.sh down || true; }
trap down EXIT

e2e/demo.sh up
e2e/demo.sh up
# Timers are settings: what takes a minute for the sake of real clients takes seconds here.
KUBECONFIG=$(target/debug/rig kubeconfig) kubectl -n ferromq-system set env deployment/ferromq-operator \
    FERROMQ_ROUTE_REFRESH_SECONDS=3 FERROMQ_RETRY_SECONDS=1 FERROMQ_RESYNC_SECONDS=10
KUBECONFIG=$(target/debug/rig kubeconfig) kubectl -n ferromq-system rollout status deployment/ferromq-operator --timeout=180s
# Programs that the tests run beside the cluster.
cargo build -p ferromq-broker -p ferromq-operator -p ferroctl
cargo test -p ferromq-e2e --features cluster --test cluster -- --nocapture
e2e/demo.sh down
trap - EXIT
# Fails when a process, mount, network namespace, link or folder of the cluster is left.
cargo test -p ferromq-e2e --features cluster --test leftovers
