# mprdma: `make demo` and `make test` do everything, set-up included.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
CARGO ?= cargo
FILE ?=

.PHONY: setup demo test test-long bench bench-loss figures lockstep mutants vm-test lint rtl docs clean

setup:
	@scripts/setup.sh

# The main job: a file crosses four paths through real RTL. `make demo FILE=path` sends your own file.
demo:
	@scripts/setup.sh demo
	@scripts/demo.sh $(if $(FILE),"$(FILE)")

test: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	scripts/run_tests.py

# What takes minutes: longer seeds of the same tests.
test-long: setup
	MPRDMA_LONG=1 scripts/run_tests.py --include-ignored

bench: setup
	$(CARGO) run -p mprdma-tests --bin bench

# Loss, path death, order of arrival and ECN threshold, measured on cards; the tables of docs/measurements.md.
figures: setup
	$(CARGO) run -p mprdma-tests --bin figures

# The part of it that writes target/loss.json.
bench-loss: setup
	$(CARGO) run -p mprdma-tests --bin figures -- loss

lockstep: setup
	@scripts/lockstep.sh

# Breaks each rule of docs/protocol.md in the printed RTL; every mutant must be noticed. MPRDMA_JOBS=n runs n at a time.
mutants: setup
	@scripts/mutants.sh

# Debian's stock kernel in QEMU drives two Verilated cards by VFIO, behind an IOMMU. No KVM, nothing installed on this machine.
vm-test:
	@scripts/setup.sh demo
	@scripts/vm/run.py

lint: setup
	$(CARGO) run -p mprdma-hw --bin mprdma-lint

# Verilog and manifest of the core into rtl/.
rtl: setup
	$(CARGO) run -p mprdma-hw --bin mprdma-gen -- --out rtl

# Regenerates from `spec` docs/registers.md and the tables in the Wireshark dissector.
docs:
	$(CARGO) run -q -p mprdma-tests --bin registers > docs/registers.md
	$(CARGO) run -q -p mprdma-tests --bin dissector

clean:
	$(CARGO) clean
