#!/usr/bin/env bash
# The main job, from nothing: a cluster, the chart, a BrokerCluster with a Topic, 10,000 messages sent and received.
#
#   demo.sh up      set everything up and leave it running (safe to run again)
#   demo.sh down    remove every trace of it
#
# Where it runs: with DEMO_CONTEXT=NAME in that kubectl context (never in the current one unasked); else, where a
# container engine answers, in a kind cluster named ferromq-demo; else in the embedded cluster of e2e/rig.
# DEMO_CLUSTER=embedded or DEMO_CLUSTER=kind chooses between the latter two.
# With DEMO_CONTEXT the cluster must be able to pull the images: name them in DEMO_IMAGE and DEMO_OPERATOR_IMAGE.
set -euo pipefail
cd "$(dirname "$0")/.."

messages=${DEMO_MESSAGES:-10000}
namespace=ferromq-demo
release=ferromq
wait_seconds=${DEMO_WAIT_SECONDS:-600}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
image=${DEMO_IMAGE:-ferromq/ferromq:$version}
operator_image=${DEMO_OPERATOR_IMAGE:-ferromq/operator:$version}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ferromq
kind_cluster=ferromq-demo
rig=target/debug/rig

say() { printf '\n\033[1m==> %s\033[0m\n' "$*" | if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9;]*m//g'; fi; }
die() { printf 'demo: %s\n' "$*" >&2; exit 1; }

. e2e/rig/versions.env
export PATH=$PATH:$cache/kubernetes-$KUBERNETES # for its kubectl, where the machine has none
helm=$cache/helm-$HELM/helm

# ---- which cluster -----------------------------------------------------------------------------------------------

engine() {
    local name
    for name in docker podman; do
        if command -v "$name" >/dev/null && timeout 10 "$name" info >/dev/null 2>&1; then
            echo "$name"
            return
        fi
    done
}

choose_cluster() {
    if [ -n "${DEMO_CONTEXT:-}" ]; then
        kind_of_cluster=existing
    elif [ -n "${DEMO_CLUSTER:-}" ]; then
        case $DEMO_CLUSTER in
        embedded | kind) kind_of_cluster=$DEMO_CLUSTER ;;
        *) die "DEMO_CLUSTER is embedded or kind, not $DEMO_CLUSTER" ;;
        esac
    elif [ -n "$(engine)" ]; then
        kind_of_cluster=kind
    else
        kind_of_cluster=embedded
    fi
}

kind_tool() {
    if command -v kind >/dev/null; then
        command -v kind
        return
    fi
    local dir=$cache/kind-v0.30.0
    if [ ! -x "$dir/kind" ]; then
        GOBIN=$dir go install sigs.k8s.io/kind@v0.30.0 >&2
    fi
    echo "$dir/kind"
}

# helm, and kubectl where the machine has none.
client_tools() {
    bash e2e/rig/setup.sh helm
    command -v kubectl >/dev/null || bash e2e/rig/setup.sh kubernetes
}

cluster_up() {
    case $kind_of_cluster in
    existing)
        say "Using the cluster of context $DEMO_CONTEXT"
        client_tools
        kubectl_args=(--context "$DEMO_CONTEXT")
        helm_args=(--kube-context "$DEMO_CONTEXT")
        ;;
    kind)
        say "A container engine answers: using kind"
        client_tools
        local kind
        kind=$(kind_tool)
        if ! "$kind" get clusters 2>/dev/null | grep -qx "$kind_cluster"; then
            "$kind" create cluster --name "$kind_cluster" --wait 120s
        fi
        kubectl_args=(--context "kind-$kind_cluster")
        helm_args=(--kube-context "kind-$kind_cluster")
        ;;
    embedded)
        say "No container engine: using the embedded cluster (the first time its programs are built, about 10 minutes)"
        bash e2e/rig/setup.sh
        "$rig" up
        export KUBECONFIG
        KUBECONFIG=$("$rig" kubeconfig)
        kubectl_args=()
        helm_args=()
        ;;
    esac
}

load_images() {
    case $kind_of_cluster in
    existing) ;;
    kind)
        "$(kind_tool)" load image-archive dist/ferromq.tar --name "$kind_cluster"
        "$(kind_tool)" load image-archive dist/ferromq-operator.tar --name "$kind_cluster"
        ;;
    embedded)
        "$rig" load dist/ferromq.tar
        "$rig" load dist/ferromq-operator.tar
        ;;
    esac
}

k() { kubectl "${kubectl_args[@]}" "$@"; }

# ---- the main job ------------------------------------------------------------------------------------------------

install_chart() {
    # Helm installs CRDs once and never changes them; applying them first also upgrades them.
    k apply --server-side --force-conflicts -f crds/ >/dev/null
    # The tag stays the same from build to build: the digest makes the operator's pod follow a new image.
    local digest=given
    if [ "$kind_of_cluster" != existing ]; then digest=$(sha256sum dist/ferromq-operator.tar | cut -c1-16); fi
    "$helm" "${helm_args[@]}" upgrade --install "$release" charts/ferromq --namespace ferromq-system --create-namespace \
        --skip-crds --set "image.repository=${operator_image%:*}" --set "image.tag=${operator_image##*:}" \
        --set-string "podAnnotations.ferromq\.io/image-digest=$digest" \
        --wait --timeout "${wait_seconds}s" >/dev/null
    echo "operator installed in namespace ferromq-system"
}

apply_example() {
    k create namespace "$namespace" --dry-run=client -o yaml | k apply -f - >/dev/null
    k -n "$namespace" apply -f examples/quickstart.yaml
    if [ "$image" != "ferromq/ferromq:$version" ]; then
        k -n "$namespace" patch mqc demo --type merge -p "{\"spec\":{\"image\":\"$image\"}}"
    fi
}

condition() {
    k -n "$namespace" get "$1" "$2" -o 'jsonpath={range .status.conditions[?(@.type=="Ready")]}{.status} {.reason} {.message}{end}' 2>/dev/null || true
}

wait_ready() {
    local kind=$1 name=$2 started=$SECONDS last='' now
    while true; do
        now=$(condition "$kind" "$name")
        if [ "$now" != "$last" ]; then
            printf '  %4ds  %s/%s: %s\n' "$((SECONDS - started))" "$kind" "$name" "${now:-no status yet}"
            last=$now
        fi
        case $now in True*) return ;; esac
        if [ $((SECONDS - started)) -gt "$wait_seconds" ]; then
            k -n "$namespace" get mqc,mqt,pods,pvc >&2 || true
            k -n "$namespace" get events --sort-by=.lastTimestamp 2>/dev/null | tail -n 15 >&2 || true
            die "$kind/$name was not Ready after ${wait_seconds} s"
        fi
        sleep 1
    done
}

# run_job NAME ARGS...: runs ferroctl in the cluster and prints what it says.
run_job() {
    local name=$1
    shift
    local args=''
    local arg
    for arg in "$@"; do args+="${args:+, }\"$arg\""; done
    k -n "$namespace" delete job "$name" --ignore-not-found --wait >/dev/null
    k -n "$namespace" apply -f - >/dev/null <<YAML
apiVersion: batch/v1
kind: Job
metadata:
  name: $name
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: ferroctl
          image: $image
          imagePullPolicy: IfNotPresent
          command: ["/ferroctl"]
          args: [$args]
          env: [{name: NAMESRV_ADDR, value: "demo-namesrv.$namespace:9876"}]
          securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
YAML
    local started=$SECONDS state
    while true; do
        state=$(k -n "$namespace" get job "$name" -o 'jsonpath={.status.succeeded}/{.status.failed}')
        case $state in
        1/*) break ;;
        */1)
            k -n "$namespace" logs "job/$name" >&2 || true
            die "job $name failed; its output is above"
            ;;
        esac
        if [ $((SECONDS - started)) -gt "$wait_seconds" ]; then die "job $name did not end in ${wait_seconds} s"; fi
        sleep 1
    done
    k -n "$namespace" logs "job/$name" | tail -n 1
}

up() {
    choose_cluster
    if [ "$kind_of_cluster" = existing ]; then
        if [ -z "${DEMO_IMAGE:-}" ] || [ -z "${DEMO_OPERATOR_IMAGE:-}" ]; then
            die "with DEMO_CONTEXT, push the images where $DEMO_CONTEXT can pull them and name them in DEMO_IMAGE and DEMO_OPERATOR_IMAGE (make images writes dist/*.tar)"
        fi
        case ${operator_image##*/} in
        *@*) die "DEMO_OPERATOR_IMAGE is given by tag, not by digest: $operator_image" ;;
        *:*) ;;
        *) operator_image=$operator_image:latest ;;
        esac
    else
        say "Building the images"
        make --no-print-directory images
    fi
    cluster_up
    say "Loading the images"
    load_images
    say "Installing the operator with Helm"
    install_chart
    say "Applying examples/quickstart.yaml"
    apply_example
    say "Waiting until it is Ready"
    wait_ready mqc demo
    wait_ready mqt orders
    local run
    run=$(date +%s)-$$
    say "Sending $messages messages"
    run_job demo-send bench send --topic orders --count "$messages" --run "$run"
    say "Receiving them"
    run_job demo-receive bench receive --topic orders --count "$messages" --run "$run" --group "demo-$run"
    say "What stands now"
    k -n "$namespace" get mqc,mqt,pods
    local try=kubectl
    if [ ${#kubectl_args[@]} -gt 0 ]; then try="kubectl ${kubectl_args[*]}"; fi
    say "It stays up. Try next:"
    if [ "$kind_of_cluster" = embedded ]; then echo "  export KUBECONFIG=$KUBECONFIG"; fi
    case $(command -v kubectl) in "$cache"/*) echo "  export PATH=\$PATH:$cache/kubernetes-$KUBERNETES" ;; esac
    cat <<TEXT
  $try -n $namespace get mqc,mqt,pods
  $try -n $namespace patch mqt orders --type merge -p '{"spec":{"writeQueues":16,"readQueues":16}}'
  $try -n $namespace delete pod demo-0-0        # nothing acknowledged is lost
  $try -n $namespace exec demo-1-0 -- /ferroctl -n demo-namesrv:9876 cluster list
  make demo-down                                # removes all of it
TEXT
}

down() {
    choose_cluster
    case $kind_of_cluster in
    existing)
        kubectl_args=(--context "$DEMO_CONTEXT")
        helm_args=(--kube-context "$DEMO_CONTEXT")
        k -n "$namespace" delete mqt,mqc --all --ignore-not-found --wait --timeout 120s || true
        k delete namespace "$namespace" --ignore-not-found --wait
        if [ -x "$helm" ]; then "$helm" "${helm_args[@]}" uninstall "$release" --namespace ferromq-system --ignore-not-found --wait; fi
        k delete namespace ferromq-system --ignore-not-found --wait
        k delete -f crds/ --ignore-not-found
        ;;
    kind)
        "$(kind_tool)" delete cluster --name "$kind_cluster"
        ;;
    embedded)
        # Without the program there was never an `up`, unless its build was cleaned: then it is built once more.
        if [ ! -x "$rig" ]; then cargo build --quiet -p ferromq-e2e --bin rig; fi
        "$rig" down
        ;;
    esac
    echo "demo: removed"
}

case ${1:-} in
up) up ;;
down) down ;;
*) sed -n '2,10p' "$0" | sed 's/^# \{0,1\}//'; exit 2 ;;
esac
