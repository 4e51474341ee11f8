#!/usr/bin/env bash
# Builds what the demo needs and runs it; arguments go to the demo.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build -p mprdma-sim -p mprdma-host -p mprdma-tests --bins
exec target/debug/demo "$@"
