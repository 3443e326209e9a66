# SPDX-License-Identifier: Apache-2.0
#
# make            list the targets
# make build      bin/lklrun, bin/lklctl, bin/lklhost and bin/stacks/
# make demo       see the stack use two paths at once

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

ifdef LINUX_SOURCE
$(error LINUX_SOURCE is not supported; build your tree with `lklrun stack build --kernel DIR`)
endif

JOBS ?= $(shell nproc)

OUT   := $(CURDIR)/build
STACK := $(OUT)/stack
BIN   := $(CURDIR)/bin
GO    ?= go
# The commit, for --version. An archive of the source has no commit.
RELEASE := $(shell git describe --tags --match 'v[0-9]*' --always --dirty 2>/dev/null)
# The programs have no symbols for a debugger, which makes them 75 % smaller. Traces of a panic
# still contain function names. All programs have the same flags, so that the packages that they
# share are compiled once. Without DWARF, and with fewer garbage collections, the compiler needs
# 20 % less time.
GOFLAGS_COMMON := -trimpath -buildvcs=false -tags netgo,osusergo -gcflags=all=-dwarf=false
GOFLAGS_RELEASE := $(GOFLAGS_COMMON) -ldflags '-s -w $(if $(RELEASE),-X github.com/lklrun/lklrun/internal/cli.Release=$(RELEASE))'
GOBUILD := GOGC=400 CGO_ENABLED=0 $(GO) build $(GOFLAGS_RELEASE)
GOBUILD_KUBE := GOGC=400 CGO_ENABLED=0 $(GO) -C kube build $(GOFLAGS_COMMON) -ldflags '-s -w'
# lklctl uses libpcap's filter compiler, but not libc's resolver and user database. It only parses
# interface specifications, so it needs no gateway.
GOBUILD_PCAP := GOGC=400 CGO_ENABLED=1 $(GO) build $(GOFLAGS_RELEASE) -tags netgo,osusergo,nogateway

GOLANGCI_LINT  := v2.15.0
GOTESTSUM      := v1.13.0
VALE           := v3.22.0
NFPM           := v2.43.0
APIDIFF        := golang.org/x/exp/cmd/apidiff@latest
HELM           := v3.22.0
CONTAINERD     := v2.4.2
KUBERNETES      = $(shell $(GO) -C kube/test/tools list -m -f '{{.Version}}' k8s.io/kubernetes)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^##@/ { print (n++ ? "\n" : "") substr($$0, 5) ":" } \
		/^[a-z0-9._-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Build
# Each list has a stamp, so that dpkg is queried only after the list has changed. A demo and cross
# builds also need the list of the build, so a user without root gets one command for all packages.
PACKAGES := $(OUT)/.packages
$(PACKAGES)-build $(PACKAGES)-cross $(PACKAGES)-demo $(PACKAGES)-test $(PACKAGES)-all $(PACKAGES)-cluster: $(PACKAGES)-%: .ci/packages/% .ci/install-packages
	@mkdir -p $(OUT)
	@.ci/install-packages $(if $(filter demo cross,$*),build) $*
	@touch $@

.PHONY: packages
packages: $(PACKAGES)-build $(PACKAGES)-demo $(PACKAGES)-test ## install the Debian packages for make test (root), or name them

.PHONY: packages-all
packages-all: packages $(PACKAGES)-cross $(PACKAGES)-all ## install the packages for make test-all as well

.PHONY: build
build: $(PACKAGES)-build ## build all programs and stacks into bin/
	+@$(PARALLEL) stack host go

# The build of the kernel leaves CPUs idle while it unpacks, configures and links.
JOBSERVER = $(findstring jobserver,$(MAKEFLAGS))
PARALLEL = $(MAKE) --no-print-directory $(if $(JOBSERVER),,-j3)

# The stack library's Makefile checks what is up to date. Each stack in stacks/ consists of its
# manifest and that library.
.PHONY: stack
stack: $(PACKAGES)-build ## build the Linux stack library and bin/stacks/
	+@test ! -f third_party/lkl/Makefile || $(MAKE) --no-print-directory -C third_party/lkl KERNEL= OUT=$(STACK) JOBS=$(JOBS)
	@for m in $(wildcard stacks/*/stack.json); do \
		d=$(BIN)/stacks/$$(basename $$(dirname $$m)); \
		mkdir -p $$d; \
		cmp -s $$m $$d/stack.json || install -m 644 $$m $$d/stack.json; \
		! grep -q '"library"' $$m || ln -sfn ../../../build/stack/liblkl.so $$d/liblkl.so; \
	done

CROSS_STACK = $(MAKE) --no-print-directory -C third_party/lkl KERNEL= LKL_ARCH=$(@:stack-%=%) OUT=$(OUT)/$@ -j$(JOBS)

.PHONY: stack-amd64
stack-amd64: $(PACKAGES)-build ## build the stack library for static linking, build/stack-amd64/liblkl.a
	+@$(CROSS_STACK)

.PHONY: stack-arm64
stack-arm64: $(PACKAGES)-build $(PACKAGES)-cross ## cross-compile the stack library for arm64
	+@$(CROSS_STACK)

.PHONY: stack-arm
stack-arm: $(PACKAGES)-build $(PACKAGES)-cross ## cross-compile the stack library for arm (ARMv7, hard float)
	+@$(CROSS_STACK)

# These files are copied by --device, see .ci/bundle. lklrun can be loaded at any address and needs
# no libraries of the device only if a C linker links it with musl's startup code.
COMMA := ,
ARCHS ?= amd64 arm64 arm
CC_amd64 := gcc
CC_arm64 := aarch64-linux-gnu-gcc
CC_arm := arm-linux-gnueabihf-gcc
GOBUILD_STATIC = CGO_ENABLED=1 GOARCH=$* GOARM=7 CC='$(CC_$*) -specs=$(OUT)/sysroot-$*/musl.specs' \
	$(GO) build -trimpath -buildvcs=false -buildmode=pie -tags $(1)netgo,osusergo,nopcap \
	-ldflags='-s -w -linkmode external -extldflags "-static-pie -Wl,-z,noexecstack,-z,max-page-size=16384"'

.PHONY: cross
cross: $(if $(filter-out amd64,$(ARCHS)),$(PACKAGES)-cross) $(ARCHS:%=cross-%) ## build bundles for devices, bin/bundles/lklrun-ARCH.tar.gz: ARCHS=arm64

.PHONY: $(ARCHS:%=cross-%)
$(ARCHS:%=cross-%): cross-%: stack-%
	@.ci/install-packages libdeflate-tools
	@.ci/sysroot $* $(OUT)/sysroot-$*
	+@$(MAKE) -s --no-print-directory -C csrc ARCH=$* -j$(JOBS) all
	@$(call GOBUILD_STATIC,device$(COMMA)) -o $(OUT)/parts-$*/ ./cmd/lklrun
	@GOARCH=$* packaging/licences -tags device ./cmd/lklrun > $(OUT)/parts-$*/licences.txt
	@.ci/bundle $* $(OUT)/parts-$* $(OUT)/stack-$*/liblkl.so $(OUT)/cross/$* $(BIN)/bundles

.PHONY: image
image: image-amd64 ## make a container image of lklrun and lklctl, bin/lklrun-amd64.oci.tar, for podman and Kubernetes

image-%: cross-%
	@.ci/install-packages umoci
	@rm -rf $(OUT)/image-$* && cp -R $(OUT)/cross/$* $(OUT)/image-$*
	@$(call GOBUILD_STATIC) -o $(OUT)/image-$*/ ./cmd/lklrun ./cmd/lklctl
	@GOARCH=$* $(GOBUILD_KUBE) -o $(OUT)/image-$*/ ./cmd/lklrun-oci
	@GOARCH=$* packaging/licences -tags nopcap ./cmd/lklrun ./cmd/lklctl ./kube/cmd/lklrun-oci > $(OUT)/image-$*/LICENSES/modules.txt
	@.ci/image $* $(OUT)/image-$* $(BIN)

# A stack of another Linux version, such as linux-6.1. The source of a version that Debian 12 does
# not have comes from a later release. KERNEL=newest is the newest version that Debian has.
KERNEL ?= 6.1

.PHONY: stack-linux
stack-linux: stack-linux-$(KERNEL) ## build the stack linux-VERSION of another kernel: KERNEL=6.1, 7.3 or newest

stack-linux-newest: $(PACKAGES)-build
	+@version=$$(.ci/linux-source newest); $(MAKE) --no-print-directory stack-linux-$$version

# Stacks of the user, which have the same names, do not matter.
stack-linux-%: $(PACKAGES)-build go
	@.ci/linux-source $*
	@LKLRUN_STACKS= XDG_DATA_HOME=/nonexistent $(BIN)/lklrun stack build --kernel $* --like stacks/mptcp --dir $(BIN)/stacks --jobs $(JOBS)

# LKL of 2017, from the copy in npm. It is never part of a build or of the tests.
.PHONY: lkl-4.9
lkl-4.9: $(PACKAGES)-build ## fetch LKL of Linux 4.9 from npm and build it as a stack, to compare
	@.ci/install-packages python3@python3 npm@npm
	+@$(MAKE) --no-print-directory -C third_party/lkl-4.9 OUT=$(STACK)-4.9 BIN=$(BIN) -j$(JOBS)

.PHONY: check-lkl-4.9
check-lkl-4.9: packages build lkl-4.9 ## run programs on that stack, and check lklctl's output
	@$(GO) test -tags lkl49 ./test/targets -run '^TestOldLKL' -count=1 -v -timeout 10m

CSRC = test ! -f csrc/Makefile || $(MAKE) -s --no-print-directory -C csrc OUT=$(BIN) SAN= $(if $(JOBSERVER),,-j$(JOBS))

.PHONY: host
host: lklhost
	+@$(CSRC) targets

.PHONY: lklhost
lklhost: $(PACKAGES)-build
	+@$(CSRC) all

.PHONY: go
go: lklrun
	@rm -f $(BIN)/lklrun-oci # was a symbolic link
	@$(GOBUILD_KUBE) -o $(BIN)/ ./cmd/lklrun-oci

# This program needs no package, so it can be compiled while they are installed.
.PHONY: lklrun-alone
lklrun-alone:
	@mkdir -p $(BIN)
	@$(GOBUILD) -o $(BIN)/ ./cmd/lklrun

.PHONY: lklrun
lklrun: $(PACKAGES)-build
	@mkdir -p $(BIN)
	@$(GOBUILD) -o $(BIN)/ ./cmd/lklrun
	@$(GOBUILD_PCAP) -o $(BIN)/ ./cmd/lklctl
	@ln -sfn lklctl $(BIN)/kubectl-lklctl

##@ Install and release
# The versions of Linux of the packages lklrun-stack-VERSION
DEB_STACKS ?= 6.1 7.3

PREFIX ?= /usr/local
INSTALLED = $(DESTDIR)$(PREFIX)/lib/lklrun

# The programs look for the other files in their own directory. The stacks share one library.
.PHONY: install
install: ## install what make build has built: PREFIX=/usr/local DESTDIR=
	@test -x $(BIN)/lklhost || { echo "bin/ is empty; run make build first (not as root, if you like)" >&2; exit 2; }
	@install -d $(INSTALLED)/stacks $(DESTDIR)$(PREFIX)/bin
	@install $(BIN)/lklrun $(BIN)/lklrun-oci $(BIN)/lklctl $(BIN)/lklhost $(BIN)/liblklpreload.so $(wildcard $(BIN)/lklvirtual) $(INSTALLED)/
	@install -m 644 $(STACK)/liblkl.so $(INSTALLED)/liblkl.so
	@for m in stacks/*/stack.json; do \
		d=$(INSTALLED)/$$(dirname $$m); \
		install -D -m 644 $$m $$d/stack.json; \
		! grep -q '"library"' $$m || ln -sfn ../../liblkl.so $$d/liblkl.so; \
	done
	@for p in lklrun lklrun-oci lklctl; do ln -sfn ../lib/lklrun/$$p $(DESTDIR)$(PREFIX)/bin/$$p; done
	@ln -sfn lklctl $(INSTALLED)/kubectl-lklctl && ln -sfn ../lib/lklrun/kubectl-lklctl $(DESTDIR)$(PREFIX)/bin/kubectl-lklctl

.PHONY: deb
deb: $(PACKAGES)-cross build cross $(DEB_STACKS:%=stack-linux-%) $(OUT)/tools/.nfpm-$(NFPM) ## build Debian packages in build/deb: VERSION=1.2.3
	@GO=$(GO) STACKS='$(DEB_STACKS)' packaging/deb/build

# Fetch the mirror's files that the test of the packages needs, because that test has no network.
.PHONY: deb-test
deb-test: deb $(PACKAGES)-all
	@.ci/debian-root amd64 $(OUT)/deb-test/amd64.tar libpcap0.8 curl man-db bash-completion zsh fish
	@.ci/debian-root amd64 $(OUT)/deb-test/amd64-build.tar libpcap0.8 curl git gcc libc6-dev make flex bison bc patch xz-utils linux-source-6.12
	@.ci/fetch-debs --deps arm64 $(OUT)/deb-test/arm64 libpcap0.8 curl dash coreutils

##@ See it work
.PHONY: demo
demo: ## fetch 200 MB over two paths at once, in a lab of two stacks; needs no root
	+@$(PARALLEL) $(PACKAGES)-demo $(if $(filter 0,$(shell id -u)),lklrun-alone)
	+@$(PARALLEL) stack lklhost lklrun
	@test/demo.sh

##@ Test
TOOLS := $(OUT)/tools/.golangci-lint-$(GOLANGCI_LINT) $(OUT)/tools/.vale-$(VALE) $(OUT)/tools/.gotestsum-$(GOTESTSUM)

# make check runs the quick tests, which need no kernel. make test needs one machine, and make
# test-all runs the rest: each test belongs to one of these two. .ci/lib lists which packages
# belong to which.
.PHONY: check
check: lklhost $(OUT)/tools/.golangci-lint-$(GOLANGCI_LINT) ## run the quick tests: lint and unit tests in Go, no build of the kernel
	@$(OUT)/tools/golangci-lint run ./...
	@for m in kube kube/test/tools test/programs/http3; do (cd $$m && $(OUT)/tools/golangci-lint run ./...) || exit; done
	@$(GO) test ./cmd/... ./internal/... ./pkg/... ./test/kit ./test/conformance
	@$(GO) -C kube test ./cmd/... ./internal/...

.PHONY: check-c
check-c: host ## run the quick tests of the C side: dependencies of the rooms, and the tests that need no kernel
	@$(MAKE) -s --no-print-directory -C csrc OUT=$(BIN) -j$(JOBS) rooms
	@$(MAKE) -s --no-print-directory -C csrc OUT=$(BIN) LKL= check

.PHONY: test
test: packages build stack-linux-6.1 cross-amd64 $(TOOLS) ## run every lint, and every test that one machine can run; results in build/results
	@.ci/test

.PHONY: test-all
test-all: packages-all build stack-linux-newest cross image-amd64 san browser cri $(TOOLS) ## run the other tests: other CPUs, emulated machines, browser, packages, fuzzers, -race
	@.ci/test-all

.PHONY: pictures
pictures: packages-all build browser ## make the pictures of the documentation from a run of one minute
	@PICTURES=$(CURDIR)/docs/pictures CI=true $(GO) test ./test/diag -run '^Test(Top|Web|WebWires)$$' -count=1 -timeout 10m

# containerd and a client of its interface. The client and Kubernetes are a module of their own,
# because the product does not need their libraries.
.PHONY: cri
cri: $(OUT)/tools/cri/.containerd-$(CONTAINERD) ## build containerd for TestContainerd and TestNRI, into build/tools/cri
	@CGO_ENABLED=0 $(GO) -C kube/test/tools build -trimpath -buildvcs=false -o $(OUT)/tools/cri/ ./...

$(OUT)/tools/cri/.containerd-$(CONTAINERD):
	@mkdir -p $(@D)
	@CGO_ENABLED=0 GOBIN=$(@D) $(GO) install -trimpath \
		$(addprefix github.com/containerd/containerd/v2/cmd/,$(addsuffix @$(CONTAINERD),containerd containerd-shim-runc-v2 ctr))
	@touch $@

# The programs of Kubernetes. The first build takes 8 minutes on two processors.
.PHONY: cluster
cluster: cri ## build kubelet and the rest of a cluster for make test-cluster, into build/tools/cluster
	@mkdir -p $(OUT)/tools/cluster
	@CGO_ENABLED=0 $(GO) -C kube/test/tools build -trimpath -buildvcs=false \
		-ldflags '-s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES)' -o $(OUT)/tools/cluster/ tool

.PHONY: test-cluster
test-cluster: packages $(PACKAGES)-cluster build cluster image-amd64 $(OUT)/tools/cluster/.helm-$(HELM) ## run pods on stacks in a cluster of one node (root)
	@CI=true $(GO) -C kube test ./test/cluster -count=1 -v -timeout 20m

$(OUT)/tools/cluster/.helm-$(HELM):
	@mkdir -p $(@D)
	@CGO_ENABLED=0 GOBIN=$(@D) $(GO) install helm.sh/helm/v3/cmd/helm@$(HELM)
	@touch $@

# The browser's driver for the test of lklctl web. It is outside the source tree, because the go
# command would look for packages in it.
.PHONY: browser
browser: $(OUT)/web/node_modules/.package-lock.json

$(OUT)/web/node_modules/.package-lock.json: test/diag/testdata/web/package.json test/diag/testdata/web/package-lock.json | $(PACKAGES)-all
	@mkdir -p $(OUT)/web
	@cp $^ $(OUT)/web/
	@cd $(OUT)/web && npm ci --ignore-scripts --no-audit --no-fund --prefer-offline --loglevel=error --cache "$${XDG_CACHE_HOME:-$$HOME/.cache}/lklrun/npm"
	@touch $@

##@ Test for longer, or with other tools
# The duration in seconds, and the seed of the random numbers. SAN=1 selects the programs with
# sanitizers.
DURATION ?= 60
SOAK ?= 600
SEED ?= $(shell date +%s)
SAN_DIR := $(OUT)/san
SAN_BIN := $(if $(SAN),$(SAN_DIR))

.PHONY: san
san: packages build ## build all programs with sanitizers and the race detector into build/san; use: LKLRUN_BIN
	+@$(MAKE) -s --no-print-directory -C csrc SAN=1 OUT=$(SAN_DIR) -j$(JOBS) all programs parsers
	@mkdir -p $(SAN_DIR)
	@CGO_ENABLED=1 $(GO) build $(GOFLAGS_RELEASE) -race -tags netgo,osusergo -o $(SAN_DIR)/ ./cmd/lklrun ./cmd/lklctl
	@ln -sfn $(BIN)/stacks $(SAN_DIR)/stacks

.PHONY: fuzz
fuzz: fuzz-parsers fuzz-calls fuzz-exchange ## run all fuzzers of the C side, each for a minute: DURATION=60 SEED=N SAN=1

.PHONY: fuzz-calls
fuzz-calls: packages build $(if $(SAN),san) ## run a target that makes random calls: DURATION=60 SEED=N SAN=1
	@FUZZ_SECONDS=$(DURATION) FUZZ_SEED=$(SEED) LKLRUN_BIN=$(SAN_BIN) \
		$(GO) test ./test/stress -run '^TestFuzz$$' -count=1 -v -timeout 1h

.PHONY: compare-calls
compare-calls: build ## make random calls natively and on a stack and compare the results: DURATION=60 SEED=N ENGINE=trace
	@$(MAKE) -s --no-print-directory -C csrc OUT=$(BIN) LKL=$(BIN)/stacks/vanilla/liblkl.so SEED=$(SEED) DURATION=$(DURATION) $@

# No package list contains clang, because nothing else needs it.
.PHONY: fuzz-exchange
fuzz-exchange: packages build $(if $(SAN),san) ## exchange descriptors, memory and instructions during calls: DURATION=60 SEED=N SAN=1
	@FUZZ_SECONDS=$(DURATION) FUZZ_SEED=$(SEED) LKLRUN_BIN=$(SAN_BIN) \
		$(GO) test ./test/escape -run '^TestExchangeFuzz$$' -count=1 -v -timeout 1h -parallel 6

.PHONY: fuzz-parsers
fuzz-parsers: $(PACKAGES)-build ## run coverage-guided fuzzers of the C parsers: DURATION=60; findings in build/fuzz
	@.ci/install-packages clang-14 libclang-rt-14-dev
	+@$(MAKE) -s --no-print-directory -C csrc FUZZ=1 -j$(JOBS) parsers
	@.ci/fuzz $(DURATION)

.PHONY: soak
soak: packages build $(if $(SAN),san) ## run connections of every kind and check every byte: SOAK=600 SEED=N SAN=1
	@SOAK_SECONDS=$(SOAK) SOAK_SEED=$(SEED) LKLRUN_BIN=$(SAN_BIN) \
		nice $(GO) test ./test/stress -run '^TestSoak(Bytes)?$$' -count=1 -v -timeout 24h

.PHONY: standing
standing: packages build ## keep well-known servers under load, with reloads, side by side: DURATION=3600; build/standing
	@mkdir -p $(OUT)/standing && $(GO) test -c -o $(OUT)/standing/ ./test/programs
	@grep -hoE '^func TestProg\w+' test/programs/*_test.go | cut -d' ' -f2 | PROGRAMS_SECONDS=$(DURATION) xargs -P 0 -I{} sh -c 'cd test/programs && \
		if nice $(OUT)/standing/programs.test -test.run "^{}$$" -test.v -test.timeout 24h >$(OUT)/standing/{}.log 2>&1; then echo "ok {}"; else echo "FAILED {}"; exit 1; fi'

KILLS ?= 200

.PHONY: kills
kills: build ## kill random processes of runs at random moments and check the cleanup: KILLS=200 SEED=N
	@KILLS=$(KILLS) KILLS_SEED=$(SEED) nice $(GO) test ./test/link -run '^TestKillRandom$$' -count=1 -v -timeout 3h

.PHONY: drivers
drivers: packages build ## test every kind of interface for a minute, all at once: DURATION=60
	@DRIVER_SECONDS=$(DURATION) $(GO) test ./test/link -run '^TestDrivers$$' -count=1 -v -parallel 32 -timeout 1h

LEASE ?= 60

.PHONY: leases
leases: packages build ## transfer while a DHCP lease is renewed, and while it moves to another network: LEASE=60 seconds
	@LEASE_SECONDS=$(LEASE) $(GO) test ./test/link -run '^TestLease.*InTransfer$$' -count=1 -v -timeout 1h

.PHONY: attach
attach: packages build ## test ten clients that watch and capture at once while others misbehave: DURATION=600
	@ATTACH_SECONDS=$(DURATION) $(GO) test ./test/diag -run '^TestAttach$$' -count=1 -v -timeout 2h

.PHONY: handover
handover: packages build ## transfer 500 MB over two paths that are cut in turn, in both directions
	@HANDOVER_MB=500 $(GO) test ./test/mptcp -run '^TestHandover' -count=1 -v -timeout 1h

##@ Measure and compare
.PHONY: bench
bench: packages build ## measure stacks beside the host, pasta and slirp4netns for 15 minutes (root); writes docs/reference/benchmarks.md
	@$(GO) run ./bench $(BENCHFLAGS)

.PHONY: conformance
conformance: packages build ## run other projects' tests, natively and on the stacks; writes docs/reference/conformance.md
	@.ci/install-packages libpython3.11-testsuite cmake dpkg-dev
	@$(GO) run ./test/conformance -stacks vanilla,mptcp,vanilla+preload,mptcp+preload \
		-out docs/reference/conformance.md $(CONFORMANCEFLAGS)

.PHONY: conformance-runtimes
conformance-runtimes: packages build ## the same with the suites of language runtimes and servers; takes hours
	@.ci/install-packages dpkg-dev perl ruby php-cli haproxy erlang-common-test node-acorn node-cjs-module-lexer node-undici python3-openssl
	@$(GO) run ./test/conformance -suites runtimes -stacks vanilla,mptcp,vanilla+trace,mptcp+trace \
		-out docs/reference/conformance-runtimes.md $(CONFORMANCEFLAGS)
	@$(GO) run ./test/conformance -suites runtimes -stacks vanilla+preload,mptcp+preload \
		-out docs/reference/conformance-preload.md $(CONFORMANCEFLAGS)

##@ Write code
.PHONY: lint
lint: $(PACKAGES)-build $(PACKAGES)-test $(TOOLS) ## run gofmt, vet, staticcheck and more; cppcheck; shellcheck; check generated files
	@.ci/lint

# The tool is not in go.mod, so that its two hundred modules do not become dependencies of this
# project.
$(OUT)/tools/.golangci-lint-$(GOLANGCI_LINT):
	@mkdir -p $(@D)
	@GOBIN=$(@D) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT)
	@touch $@

$(OUT)/tools/.vale-$(VALE):
	@mkdir -p $(@D)
	@GOBIN=$(@D) $(GO) install github.com/vale-cli/vale/v3/cmd/vale@$(VALE)
	@touch $@

$(OUT)/tools/.gotestsum-$(GOTESTSUM):
	@mkdir -p $(@D)
	@GOBIN=$(@D) $(GO) install gotest.tools/gotestsum@$(GOTESTSUM)
	@touch $@

$(OUT)/tools/.nfpm-$(NFPM):
	@mkdir -p $(@D)
	@GOBIN=$(@D) $(GO) install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM)
	@touch $@

.PHONY: compile_commands.json
compile_commands.json: $(PACKAGES)-build ## tell editors and clangd how each C file is compiled
	@.ci/install-packages bear
	@bear --output $@ -- $(MAKE) -s --no-print-directory -C csrc OUT=$(OUT)/bear OBJ=$(OUT)/bear/obj -B -j$(JOBS) all

# The last release is the base; without a tag, there is no API to keep.
.PHONY: apidiff
apidiff: ## compare the exported API of pkg/ with that of the last release
	@base=$$(git describe --tags --match 'v[0-9]*' --abbrev=0 2>/dev/null) || { echo "there is no release tag yet"; exit 0; }; \
	rm -rf $(OUT)/apidiff && git worktree prune && git worktree add -q --detach $(OUT)/apidiff $$base; \
	for p in config capture lab; do \
		(cd $(OUT)/apidiff && $(GO) run $(APIDIFF) -w $(OUT)/apidiff-$$p ./pkg/$$p); \
		$(GO) run $(APIDIFF) -incompatible $(OUT)/apidiff-$$p ./pkg/$$p | tee /dev/stderr | (! grep -q .); \
	done

.PHONY: generate
generate: ## generate files from csrc/shared/ctl_proto.h
	@$(GO) generate ./...

.PHONY: reference
reference: ## write the page about the JSON output to build/reference/json.md
	@mkdir -p $(OUT)/reference
	@REFERENCE=$(OUT)/reference $(GO) test ./cmd/lklctl -run '^TestDocuments$$' -count=1 >/dev/null
	@echo "build/reference/json.md"

.PHONY: man
man: build ## write the manual pages of lklrun and lklctl to build/man
	@for p in lklrun lklctl; do SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 0) $(BIN)/$$p man $(OUT)/man; done
	@echo "man -l build/man/lklctl.1"

.PHONY: clean
clean: ## remove bin/ and build/
	rm -rf $(BIN) $(OUT)
