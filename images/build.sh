#!/usr/bin/env bash
# Builds the two container images without a container engine: static binaries, each put at the root of an
# otherwise empty image. Result: dist/ferromq.tar and dist/ferromq-operator.tar (docker archives).
#
# The flag and the target are given here and not in the cargo configuration: crt-static without an explicit
# --target also applies to procedure macros, which then fail to build.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${IMAGE_TAG:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)}
triple=$(rustc -vV | sed -n 's/^host: //p')
limit_bytes=$((40 * 1024 * 1024))

echo "images: building static binaries for $triple"
RUSTFLAGS="-C target-feature=+crt-static" cargo build --quiet --release --target "$triple" \
    -p ferromq-broker -p ferromq-namesrv -p ferroctl -p ferromq-operator
out="target/$triple/release"
cargo build --quiet -p ferromq-e2e --bin rig

mkdir -p dist
target/debug/rig image --tag "ferromq/ferromq:$version" --out dist/ferromq.tar --user 65532:65532 \
    --binary "$out/ferromq-broker:/ferromq-broker" \
    --binary "$out/ferromq-namesrv:/ferromq-namesrv" \
    --binary "$out/ferroctl:/ferroctl"
target/debug/rig image --tag "ferromq/operator:$version" --out dist/ferromq-operator.tar --user 65532:65532 \
    --binary "$out/ferromq-operator:/ferromq-operator" --entrypoint /ferromq-operator

for archive in dist/ferromq.tar dist/ferromq-operator.tar; do
    size=$(stat -c %s "$archive")
    printf 'images: %-28s %5.1f MB\n' "$archive" "$(echo "$size" | awk '{print $1 / 1048576}')"
    if [ "$size" -gt "$limit_bytes" ]; then
        echo "images: $archive is over the limit of 40 MB" >&2
        exit 1
    fi
done
