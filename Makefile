# The targets of the project. `make` alone lists them. What takes more than a line is Go: see tools/cmd/wherry-dev.

SHELL    := /bin/bash
DEV      := bin/wherry-dev
MODULES  := . controlplane tools $(patsubst %/go.mod,%,$(wildcard bench/go.mod conformance/go.mod examples/embed/go.mod tools/packages/go.mod))
FUZZTIME ?= 20s
# Of make conformance: which tests, which not, on which node agent, how many at a time, how often.
FOCUS    ?= \[NodeConformance\]
SKIP     ?=
LIST     ?=
NODE     ?= wherry
PROCS    ?= 8
REPEAT   ?= 1
SEEDS    ?= 1000
# Root and a quiet machine are needed for the tests that start containers and look for what is left behind.
ROOT     := $(filter 0,$(shell id -u))

.DEFAULT_GOAL := help
.PHONY: help up down status example-csi build test race lint golden fuzz sim long many prove mutate conformance conformance-node conformance-vm conformance-kubeadm conformance-storage conformance-external conformance-ci crash kill-volumes bench differential differential-config check dev release packages packager fleet vm vm-down test-vm kubeadm vuln clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Always asked: the go command knows whether there is something to do.
dev:
	@cd tools && CGO_ENABLED=0 go build -o ../$(DEV) ./cmd/wherry-dev

up: dev ## build all, bring up a control plane, containerd and one node; RUNTIME=containerd2|debian|simulated|/path.sock
	@$(DEV) up

down: dev ## end all of it and leave nothing behind
	@$(DEV) down

status: dev ## what runs
	@$(DEV) status

example-csi: dev ## while make up is up: a StatefulSet with a CSI volume that waits, grows and moves to a second node: docs/volumes.md
	@$(DEV) csi-example

build: dev ## build our programs, the pinned ones of others and the images into bin/
	@$(DEV) packages
	@$(DEV) build
	@$(DEV) images

release: dev ## build the checked-out commit twice, compare, and leave the agent, its bill of materials and checksums in dist/
	@$(DEV) release

packager:
	@cd tools/packages && CGO_ENABLED=0 go build -o ../../bin/wherry-packages .

packages: packager ## .deb, .rpm, tarball and OCI image of the agent for amd64 and arm64 in dist/packages/: docs/packages.md
	@bin/wherry-packages

vm: dev packager ## a virtual machine with systemd and cgroup v2 as a node, Wherry installed in it from its packages: docs/vm.md
	@$(DEV) vm up

vm-down: dev ## end the virtual machine and leave nothing behind but its image in the cache
	@$(DEV) vm down

# One guest serves all tests, one after the other; it is ended afterwards. RUN= is a regular expression of test names.
test-vm: dev packager ## tests of a node on a real machine: systemd, packages, power cuts, an NFS outage, take-over (an hour without KVM)
	@$(DEV) vm prepare
	cd tools && WHERRY_VM=1 go test ./test/vm -count=1 -v -timeout 180m $(if $(RUN),-run '$(RUN)')

kubeadm: dev ## a cluster of two nodes made by kubeadm, its control plane static pods: init, join, certificates, upgrade, reset; KEEP=1 leaves it up: docs/kubeadm.md
	@$(DEV) kubeadm walk $(if $(KEEP),--keep) $(if $(NODE),--node=$(NODE))

# It needs the database: https://vuln.go.dev, or what GOVULNDB names.
vuln: ## look for known vulnerabilities in what the agent calls (govulncheck); skipped where its database is out of reach
	@cd tools/lint && go build -o ../../bin/govulncheck golang.org/x/vuln/cmd/govulncheck
	@out=$$(bin/govulncheck -tags grpcnotrace $(if $(GOVULNDB),-db $(GOVULNDB)) ./... 2>&1); code=$$?; \
	if [ $$code != 0 ] && grep -qiE 'fetching vulnerabilities|dial tcp|no such host|proxyconnect|connection refused|i/o timeout|Forbidden' <<<"$$out"; then \
	  echo "make vuln: skipped, the vulnerability database is out of reach: $$(tail -n 1 <<<"$$out")"; else echo "$$out"; exit $$code; fi

# The tests on real parts have the machine to themselves. The few of them that fail are run once more alone, and the output
# says so; `go test ./test/integration` does not do that.
test: dev ## all tests: of every module; as root also on a real control plane and a real containerd
ifneq ($(ROOT),)
	@$(DEV) packages --browser
	@$(DEV) build wherry wherry-controlplane runc containerd "CNI plugins" crictl critest kubectl metrics-server csimock "image programs"
	@$(DEV) images
else
	@echo "not root: the tests on real containers are skipped"
endif
	go test -timeout 40m $$(go list ./... | grep -v /test/integration)
	$(if $(ROOT),$(DEV) integration)
	$(MAKE) --no-print-directory sim
	cd controlplane && go test -timeout 20m ./...
	cd bench && go test -timeout 20m ./...
	cd examples/embed && go test ./...
	cd tools/packages && go test ./...
	cd tools && $(if $(ROOT),WHERRY_UPDOWN=1) go test -timeout 30m ./...

race: ## the tests of the root module under the race detector, but for the real node (15 minutes)
	CGO_ENABLED=1 go test -race -short -timeout 60m ./agent/... ./internal/... ./cmd/...

# Programs are what deadcode begins at, the examples too; a String method is for people, and reached by printing.
SUPPORT := sim/... proof/...
lint: ## gofmt, vet, staticcheck, and nothing that no program uses
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$unformatted" ]; then echo "not formatted: $$unformatted"; exit 1; fi
	@for m in $(MODULES); do (echo "vet $$m"; cd $$m && go vet ./...) || exit 1; done
	@cd tools/lint && go build -o ../../bin/ honnef.co/go/tools/cmd/staticcheck golang.org/x/tools/cmd/deadcode ./unused && go test ./unused
	@for m in $(MODULES); do (echo "staticcheck $$m"; cd $$m && $(CURDIR)/bin/staticcheck ./...) || exit 1; done
	@echo deadcode; dead=$$(bin/deadcode -tags grpcnotrace ./cmd/... ./examples/...) || exit 1; \
	  dead=$$(grep -vE '\.String$$|: (Honoured|WherryDoc|LiveFields|ReadPart)$$' <<<"$$dead" || true); if [ -n "$$dead" ]; then echo "$$dead"; exit 1; fi
	@echo unused; bin/unused -known tools/lint/unused/known.txt -support "$$(printf 'github.com/wherry-node/wherry/internal/%s,' $(SUPPORT))" . bench tools

golden: ## rewrite the expected results in testdata, and the tables in docs; read the diff
	go test $$(grep -rl --include='*_test.go' 'flag.Bool("update"' agent internal | xargs -n1 dirname | sort -u | sed 's|^|./|') -update
	@git diff --stat -- '*testdata*' docs

# Go before 1.27 sometimes reports the end of FUZZTIME as the failure "context deadline exceeded". A real failure writes its input.
fuzz: ## every fuzz test for FUZZTIME (default 20s)
	@out=$$(mktemp); trap "rm -f $$out" EXIT; set -o pipefail; \
	grep -ro --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' agent internal cmd | while IFS=: read -r file f; do \
	  echo "fuzz $$(dirname $$file) $${f#func }"; go test ./$$(dirname $$file) -run '^$$' -fuzz "^$${f#func }$$" -fuzztime $(FUZZTIME) 2>&1 | tee $$out && continue; \
	  grep -q 'context deadline exceeded' $$out && ! grep -q 'Failing input written' $$out || exit 1; echo "this was only the end of the time"; done

sim: ## SEEDS (1000) seeded runs of a whole agent with faults and kills, each from SEED (1) on; SEEDS=1 SEED=n repeats one
	GOGC=400 go test ./internal/proof/agenttest -run '^TestSim(Disks)?$$' -count=1 -timeout 0 -seeds $(SEEDS) -seed $(or $(SEED),1) -v | grep -v -e '^ *=== ' -e '^ *--- PASS'; exit $${PIPESTATUS[0]}

long: ## N (100000) pods of all kinds through one agent, in virtual time: what it holds does not grow
	go test ./internal/proof/agenttest -run '^TestPodsAreForgotten$$' -count=1 -timeout 0 -pods $(or $(N),100000) -v

many: ## 100 agents in one process, 10 pods each, over the simulated runtime, on a control plane of their own
	@$(MAKE) --no-print-directory dev && $(DEV) build wherry-controlplane && $(DEV) with-plane -- go run ./examples/many --kubeconfig {kubeconfig}

fleet: ## N (100) simulated nodes with PODS (500) pods in a control plane of their own, until Ctrl-C: docs/fleet.md; FLEET=more flags
	@$(MAKE) --no-print-directory dev && $(DEV) build wherry wherry-controlplane
	@bin/wherry fleet --nodes $(or $(N),100) --pods $(or $(PODS),500) $(FLEET)

prove: ## the exhaustive search over a pod's life with its large budgets (long)
	go test ./internal/core/decide -run 'TestSearch|TestPlanted' -deep -timeout 4h -v | grep -vE '^=== |^ *--- PASS'

mutate: ## change one thing at a time in internal/core/decide and see whether its tests notice (10 minutes)
	cd tools && go run ./cmd/wherry-mutate -dir .. -pkg ./internal/core/decide -known ../internal/core/decide/testdata/mutants.txt -run '^TestScripts$$;^Test(Turns|RulesOfTurns|Memory|MemoryCopies|MayRestart|IsSidecar|SameContainer|Started|DefaultPolicy|UsableSandbox|PhaseNames|Killing|StartsAgain|EndReported|Revive|HaltKeepsTheFirstReasonAndTheShortestGrace|RefreshDropsTheWaitsOfVolumes|NeverMade|PullReasons|Meet|ResizeOnItsWay|BackOffWhileTheClockIsSetBack)$$;^FuzzDecide$$;^TestSearch$$'

conformance: ## upstream's tests on a node of their own: FOCUS= SKIP= LIST=file NODE=wherry|kubelet PROCS= REPEAT= RUNTIME=containerd2|debian
	@$(MAKE) --no-print-directory dev && $(DEV) conformance --focus='$(FOCUS)' --skip='$(SKIP)' --node=$(NODE) --procs=$(PROCS) --repeat=$(REPEAT) --list='$(LIST)' --runtime='$(RUNTIME)'

conformance-node: ## upstream's node suite (e2e_node.test) the same way: FOCUS= SKIP= LIST=file NODE=wherry|kubelet PROCS= REPEAT=
	@$(MAKE) --no-print-directory dev && $(DEV) conformance --suite=node --focus='$(FOCUS)' --skip='$(SKIP)' --node=$(NODE) --procs=$(PROCS) --repeat=$(REPEAT) --list='$(LIST)' --runtime='$(RUNTIME)'

conformance-vm: packager ## the node suite in a virtual machine with systemd and cgroup v2: as above, also SWAP=MiB, LIMIT=70m, KEEP=1 (for the next run): docs/vm.md
	@$(MAKE) --no-print-directory dev && $(DEV) conformance --suite=vm --focus='$(FOCUS)' --skip='$(SKIP)' --node=$(NODE) --procs=$(PROCS) --repeat=$(REPEAT) --list='$(LIST)' $(if $(SWAP),--swap=$(SWAP)) $(if $(LIMIT),--limit=$(LIMIT)) $(if $(KEEP),--keep)

conformance-kubeadm: ## upstream's [Conformance] tests on two nodes of a cluster that kubeadm makes, with the same options: docs/kubeadm.md
	@$(MAKE) --no-print-directory dev && $(DEV) conformance --suite=kubeadm --focus='$(FOCUS)' --skip='$(SKIP)' --node=$(NODE) --procs=$(PROCS) --repeat=$(REPEAT) --list='$(LIST)' --runtime='$(RUNTIME)'

conformance-storage: ## upstream's tests of volumes ([sig-storage]) on such nodes, with the same options: conformance/README.md
	@$(MAKE) --no-print-directory dev && $(DEV) conformance --suite=storage --focus='$(FOCUS)' --skip='$(SKIP)' --node=$(NODE) --procs=$(PROCS) --repeat=$(REPEAT) --list='$(LIST)' --runtime='$(RUNTIME)'

conformance-external: ## upstream's tests of a CSI driver (External.Storage) with the drivers of examples/csi on such nodes, with the same options: conformance/README.md
	@$(MAKE) --no-print-directory dev && $(DEV) conformance --suite=external --focus='$(FOCUS)' --skip='$(SKIP)' --node=$(NODE) --procs=$(PROCS) --repeat=$(REPEAT) --list='$(LIST)' --runtime='$(RUNTIME)'

# What fails is run once more alone, and the output says so: here a busy machine is no news, in a whole run it is.
conformance-ci: ## the part of them that covers every area in a few minutes, as CI runs it: conformance/ci.txt, node-ci.txt
ifneq ($(ROOT),)
	@$(MAKE) --no-print-directory dev && $(DEV) conformance --list=conformance/ci.txt --procs=10 --retry --brief --limit=25m
	@$(DEV) conformance --suite=node --list=conformance/node-ci.txt --procs=10 --retry --brief --limit=12m
else
	@echo "not root: upstream's tests on a node are skipped"
endif

crash: ## kill the agent N times (default 200) under pods that come and go on a real containerd, and look at them; SEED=...
	@$(MAKE) --no-print-directory build
	go test ./test/integration -run 'TestCrash$$' -count=1 -v -timeout 3h -args -crash $(or $(N),200) -crash.pods $(or $(PODS),50) -crash.seed $(or $(SEED),0)

kill-volumes: ## kill the agent and a CSI driver N times (default 200) under pods with volumes that come and go; SEED=...
	@$(MAKE) --no-print-directory build
	go test ./test/integration -run 'TestVolumeKills$$' -count=1 -v -timeout 3h -args -volumekills $(or $(N),200) -volumekills.pods $(or $(PODS),8) -volumekills.seed $(or $(SEED),0)

bench: ## the same work on upstream's kubelet, on bare CRI calls, on the least that any agent does and on Wherry, in one run (45 minutes; FULL=1: two hours); see bench/results/
	@$(MAKE) --no-print-directory build && cd bench && go run ./cmd/wherry-bench $(if $(FULL),-full) $(BENCH)

differential-config: ## what upstream's kubelet and Wherry tell a runtime, field by field: each field of a pod's spec alone, and N random pods (default 1000)
	cd bench && go build -o ../bin/wherry-configs ./cmd/wherry-configs && ../bin/wherry-configs -n $(or $(N),1000) -seed $(or $(SEED),1)
	bin/wherry-configs -node strict -n $$(( $(or $(N),1000) / 10 )) -seed $(or $(SEED),1)
	bin/wherry-configs -node swap -n $$(( $(or $(N),1000) / 10 )) -seed $(or $(SEED),1)

# A quarter as many pods with many fields, a tenth as many static pods, and a tenth as many lives for each of the two ways in which an agent is restarted.
differential: ## the same N (default 400) generated pods on upstream's kubelet and on Wherry, and what the two do differently: docs/differences.md; SEED= KEEP=dir CASE=file-or-dir
	@$(MAKE) --no-print-directory dev && $(DEV) build wherry wherry-controlplane kubelet
	cd bench && go run ./cmd/wherry-differential -n $(or $(N),400) -specs $$(( $(or $(N),400) / 4 )) -statics $$(( $(or $(N),400) / 10 )) -restarts $$(( $(or $(N),400) / 10 )) -seed $(or $(SEED),1) $(if $(KEEP),-keep $(abspath $(KEEP))) $(if $(CASE),-case $(abspath $(CASE))) $(DIFFERENTIAL)

check: ## exactly what CI runs
	@.ci/run
