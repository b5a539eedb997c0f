#!/usr/bin/env bash
# Installs what the cluster rig needs on a Debian machine that has Rust, Go and apt. Safe to run again at any time:
# what is there is left alone, and an interrupted run leaves no half-built tool.
#
#   setup.sh            everything
#   setup.sh PART...    only these parts: packages kubernetes coredns local-path-provisioner helm kubeconform pause
#
# Tools are built from source through the Go module proxy and kept in
# ${XDG_CACHE_HOME:-$HOME/.cache}/ferromq/TOOL-VERSION/. The long output goes to setup.log beside them.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ferromq
log=$cache/setup.log
parts=(packages pause kubernetes coredns local-path-provisioner helm kubeconform)
# shellcheck source=versions.env
. "$here/versions.env"

say() { printf 'setup: %4ds  %s\n' "$SECONDS" "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

mkdir -p "$cache"
# One set-up at a time: a second one waits for the first and then finds the work done.
exec 9>"$cache/setup.lock"
if ! flock -n 9; then
    say "another set-up is running; waiting for it"
    flock 9
fi
work=$(mktemp -d "$cache/.build-XXXXXX")
policy=/usr/sbin/policy-rc.d
policy_mark="written by the set-up of FerroMQ's rig"
policy_is_ours=
cleanup() {
    local status=$?
    rm -rf "$work"
    if [ -n "$policy_is_ours" ]; then rm -f "$policy"; fi
    if [ "$status" -ne 0 ]; then
        printf 'setup: failed; the last lines of %s:\n' "$log" >&2
        tail -n 15 "$log" | sed 's/^/    /' >&2
    fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
# What an earlier run left when it was killed outright. The lock says that nobody is using it.
if grep -qs "$policy_mark" "$policy"; then rm -f "$policy"; fi
find "$cache" -maxdepth 1 -name '.build-*' ! -path "$work" -exec rm -rf {} +
: >"$log"

# ---- Debian packages ---------------------------------------------------------------------------------------------

# Package and a file that tells that its tool is there, from whatever package it came.
needs=(
    "etcd-server etcd" "etcd-client etcdctl" "containerd containerd" "runc runc"
    "containernetworking-plugins /usr/lib/cni/bridge" "iptables iptables" "conntrack conntrack" "ipset ipset"
    "ethtool ethtool" "socat socat" "iproute2 ip" "util-linux nsenter" "mount mount" "kmod modprobe"
    "procps sysctl" "openssl openssl" "busybox-static busybox" "e2fsprogs mkfs.ext4" "curl curl" "gcc cc" "libc6-dev /usr/include/stdio.h"
)

missing_packages() {
    local need package probe
    for need in "${needs[@]}"; do
        package=${need% *} probe=${need#* }
        case $probe in
        # Only a static one can stand in an image alone.
        busybox) command -v busybox >/dev/null && ! ldd "$(command -v busybox)" >/dev/null 2>&1 || echo "$package" ;;
        /*) [ -e "$probe" ] || echo "$package" ;;
        *) PATH=$PATH:/usr/sbin:/sbin command -v "$probe" >/dev/null || echo "$package" ;;
        esac
    done
}

install_packages() {
    local missing
    mapfile -t missing < <(missing_packages)
    if [ ${#missing[@]} -eq 0 ]; then
        say "packages: all there"
        return
    fi
    [ "$(id -u)" -eq 0 ] || die "these packages are missing and installing them needs root: ${missing[*]}"
    say "packages: installing ${missing[*]}"
    # Debian starts the services of a package when it installs it; the rig runs its own etcd and containerd.
    if [ ! -e "$policy" ]; then
        policy_is_ours=1
        printf '#!/bin/sh\n# %s\nexit 101\n' "$policy_mark" >"$policy"
        chmod 755 "$policy"
    fi
    local apt=(apt-get -qq -y --no-install-recommends -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 install)
    export DEBIAN_FRONTEND=noninteractive
    # The package lists may be absent (a fresh image) or stale: fetch them when the first try fails.
    if ! "${apt[@]}" "${missing[@]}" >>"$log" 2>&1; then
        apt-get -qq -o DPkg::Lock::Timeout=300 update >>"$log" 2>&1
        "${apt[@]}" "${missing[@]}" >>"$log" 2>&1
    fi
    if [ -n "$policy_is_ours" ]; then
        rm -f "$policy"
        policy_is_ours=
    fi
    if [ -d /run/systemd/system ]; then
        local package
        for package in "${missing[@]}"; do
            case $package in
            etcd-server) systemctl disable etcd >>"$log" 2>&1 || true ;;
            containerd) systemctl disable containerd >>"$log" 2>&1 || true ;;
            esac
        done
    fi
    say "packages: installed"
}

# ---- tools -------------------------------------------------------------------------------------------------------

# build NAME VERSION FUNCTION: runs FUNCTION with an empty folder and moves it into the cache when whole.
build() {
    local name=$1 version=$2 make=$3 out
    out=$cache/$name-$version
    if [ -d "$out" ]; then
        say "$name $version: there"
        return
    fi
    case $name in
    pause) command -v cc >/dev/null || die "no C compiler: run this script's part packages first" ;;
    *) command -v go >/dev/null || die "no Go: install Go 1.24 or newer (https://go.dev/dl) and try again" ;;
    esac
    say "$name $version: building"
    mkdir "$work/$name"
    "$make" "$work/$name" >>"$log" 2>&1
    mv -T "$work/$name" "$out"
    say "$name $version: built"
}

# Static programs, so that those that run as pods need no base image.
export CGO_ENABLED=0
go_flags=(-trimpath -buildvcs=false)

make_kubernetes() {
    local component=k8s.io/component-base/version programs=(kube-apiserver kube-controller-manager kube-proxy kube-scheduler kubelet)
    # Any kubectl will do; build one only where there is none.
    command -v kubectl >/dev/null || programs+=(kubectl)
    (cd "$here/kubernetes" && go build "${go_flags[@]}" -mod=readonly -o "$1/" -ldflags "-s -w
        -X $component.gitVersion=v$KUBERNETES -X $component.gitMajor=${KUBERNETES%%.*}
        -X $component.gitMinor=$(cut -d. -f2 <<<"$KUBERNETES") -X $component.gitTreeState=clean" \
        "${programs[@]/#/k8s.io/kubernetes/cmd/}")
}
go_install() { # FOLDER PACKAGE@VERSION [LDFLAGS]
    GOBIN=$1 GOFLAGS= go install "${go_flags[@]}" -ldflags "-s -w ${3:-}" "$2"
}
make_coredns() { go_install "$1" "github.com/coredns/coredns@v$COREDNS"; }
make_local_path_provisioner() {
    go_install "$1" "github.com/rancher/local-path-provisioner@v$LOCAL_PATH_PROVISIONER" "-X main.VERSION=v$LOCAL_PATH_PROVISIONER"
}
make_helm() { go_install "$1" "helm.sh/helm/v3/cmd/helm@v$HELM" "-X helm.sh/helm/v3/internal/version.version=v$HELM"; }
make_kubeconform() { go_install "$1" "github.com/yannh/kubeconform/cmd/kubeconform@v$KUBECONFORM" "-X main.version=v$KUBECONFORM"; }
make_pause() { cc -static -Os -s -o "$1/pause" "$here/pause.c"; }

# ------------------------------------------------------------------------------------------------------------------

if [ $# -gt 0 ]; then parts=("$@"); fi
for part in "${parts[@]}"; do
    case $part in
    packages) install_packages ;;
    pause) build pause "$PAUSE" make_pause ;;
    kubernetes) build kubernetes "$KUBERNETES" make_kubernetes ;;
    coredns) build coredns "$COREDNS" make_coredns ;;
    local-path-provisioner) build local-path-provisioner "$LOCAL_PATH_PROVISIONER" make_local_path_provisioner ;;
    helm) build helm "$HELM" make_helm ;;
    kubeconform) build kubeconform "$KUBECONFORM" make_kubeconform ;;
    *) die "no part named $part; there are: ${parts[*]}" ;;
    esac
done
say "done"
