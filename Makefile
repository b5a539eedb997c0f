# One target per need; .ci/run calls only these.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:

include e2e/rig/versions.env
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/ferromq
HELM_BIN := $(CACHE)/helm-$(HELM)/helm
KUBECONFORM_BIN := $(CACHE)/kubeconform-$(KUBECONFORM)/kubeconform

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: demo
demo: ## from nothing to 10,000 messages sent and received on a Kubernetes cluster; leaves it running
	@e2e/demo.sh up

.PHONY: demo-down
demo-down: ## remove every trace of `make demo`
	@e2e/demo.sh down

.PHONY: dev
dev: ## name server and broker on this machine, without Kubernetes; Ctrl-C stops them
	@cargo build --quiet -p ferromq-broker -p ferroctl
	mkdir -p target/dev
	cat > target/dev/broker.conf <<-CONF
		brokerName=dev
		bindAddress=127.0.0.1
		brokerIP1=127.0.0.1
		brokerIP2=127.0.0.1
		httpPort=8080
		storePathRootDir=$(CURDIR)/target/dev/store
		mappedFileSizeCommitLog=67108864
	CONF
	echo "dev: name server 127.0.0.1:9876, broker 127.0.0.1:10911, data in target/dev"
	echo "dev: http://127.0.0.1:8080/status"
	echo "dev: try  target/debug/ferroctl -n 127.0.0.1:9876 cluster list"
	exec target/debug/ferromq-broker --with-namesrv -c target/dev/broker.conf -n 127.0.0.1:9876

.PHONY: test
test: unit interop e2e ## install what the tests need and run them all

.PHONY: ci
ci: lint test ## what .ci/run runs

.PHONY: unit
unit: ## unit and integration tests of the crates
	@e2e/rig/setup.sh packages
	cargo test --workspace
	cargo test -p ferromq-client --features otel --test it otel::

.PHONY: interop
interop: ## the official Java and Go clients and Java's own store against our broker, on loopback
	@e2e/java/build.sh
	@e2e/go/build.sh
	cargo build -p ferromq-broker -p ferromq-namesrv -p ferroctl
	cargo test -p ferromq-e2e --features interop --test interop

.PHONY: images
images: ## both container images into dist/, without a container engine
	@images/build.sh

.PHONY: e2e
e2e: ## the embedded cluster: the demo twice, the end-to-end tests, and its removal
	@e2e/java/build.sh
	e2e/run.sh

.PHONY: e2e-rig
e2e-rig: ## tests of the embedded cluster itself; none may be up
	@e2e/rig/setup.sh
	cargo test -p ferromq-e2e --features cluster --test rig

.PHONY: e2e-kind
e2e-kind: ## the demo, on kind where a container engine answers
	@e2e/demo.sh up
	e2e/demo.sh down

.PHONY: bench-brokers
bench-brokers: ## our broker beside Java's in one run: CPU, memory, system calls; wants a quiet machine
	@e2e/java/build.sh
	cargo build --release -p ferromq-broker -p ferromq-namesrv -p ferroctl
	FERROMQ_BIN_DIR=$(CURDIR)/target/release \
		JAVA_HEAP=4g JAVA_FLAGS="-XX:+UseG1GC -XX:MaxDirectMemorySize=2g" \
		cargo bench -p ferromq-e2e --features interop --bench brokers

.PHONY: many-clients
many-clients: ## a broker with 5,000 connections and 2,000 consumer groups
	ulimit -n $$(ulimit -Hn); FERROMQ_CONNECTIONS=5000 FERROMQ_GROUPS=2000 FERROMQ_TOPICS=3000 \
		cargo test --release -p ferromq-broker --test it -- many:: crowds::topics --nocapture

.PHONY: bench-client
bench-client: ## our client beside Java's in one run, and how far one client goes; wants a quiet machine
	@e2e/java/build.sh
	cargo build --release -p ferromq-broker -p ferromq-namesrv
	FERROMQ_BIN_DIR=$(CURDIR)/target/release \
		JAVA_HEAP=1g JAVA_FLAGS="-XX:+UseG1GC -XX:MaxDirectMemorySize=512m" \
		cargo bench -p ferromq-e2e --features interop --bench clients
	FERROMQ_BIN_DIR=$(CURDIR)/target/release cargo bench -p ferromq-e2e --features interop --bench client_scale

.PHONY: bench-namesrv
bench-namesrv: ## our name server beside Java's with 1,000 brokers and 10,000 clients; wants a quiet machine
	@e2e/java/build.sh
	JAVA_HEAP=4g JAVA_FLAGS="-XX:+UseG1GC" cargo bench -p ferromq-namesrv --bench scale

.PHONY: fmt
fmt: ## format the code
	cargo fmt --all

.PHONY: lint
lint: chart ## formatting, clippy, CRD files, chart
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --features ferromq-e2e/cluster,ferromq-e2e/interop,ferromq-client/otel -- -D warnings
	for dir in crds charts/ferromq/crds; do
		cargo run --quiet -p ferromq-operator -- crd --dir target/crds
		diff -ru $$dir target/crds
	done

.PHONY: chart
chart: ## helm lint, and a rendering of the chart
	@e2e/rig/setup.sh helm
	$(HELM_BIN) lint charts/ferromq --strict
	$(HELM_BIN) template ferromq charts/ferromq --namespace ferromq-system > /dev/null

.PHONY: crds
crds: ## write crds/ and the chart's copy from the operator's types
	cargo run --quiet -p ferromq-operator -- crd --dir crds
	cargo run --quiet -p ferromq-operator -- crd --dir charts/ferromq/crds

.PHONY: fuzz
fuzz: ## run each fuzz target for TIME seconds (60); what they find stays in fuzz/target
	@command -v cargo-fuzz >/dev/null || cargo install --quiet --locked cargo-fuzz
	cd fuzz
	for target in $$(cargo fuzz list); do
		mkdir -p target/found/$$target
		RUSTC_BOOTSTRAP=1 cargo fuzz run $$target target/found/$$target corpus/$$target -- -max_total_time=$(or $(TIME),60)
	done

.PHONY: store-model
store-model: ## the store against its models and a disk that loses power, for CASES cases (1000)
	PROPTEST_CASES=$(or $(CASES),1000) POWER_LOSSES=$(or $(CASES),1000) \
		cargo test -p ferromq-store --test power_model --test recovery_model --test faulty_disk

.PHONY: kill-loop
kill-loop: ## kill -9 of the broker under load, ROUNDS times (1000), 30 to a store
	ROUNDS=$(or $(ROUNDS),1000) cargo test -p ferromq-broker --test it kill_loop -- --nocapture

.PHONY: deny
deny: ## licences, banned crates and sources of dependencies
	@command -v cargo-deny >/dev/null || cargo install --quiet --locked cargo-deny@0.20.2
	cargo deny check bans licenses sources

.PHONY: clean
clean: ## remove what was built here (not the cache of tools)
	cargo clean
	rm -rf dist
