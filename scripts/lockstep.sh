#!/usr/bin/env bash
# Runs both engines in lockstep with their models and writes target/lockstep.json.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -f target/lockstep*.json
for engine in sender receiver; do
    cargo test -p mprdma-hw --test "$engine" -- --ignored lockstep_long
done
python3 - <<'EOF'
import json
rows = [json.load(open(f"target/lockstep-{engine}.json")) for engine in ("sender", "receiver")]
with open("target/lockstep.json", "w") as out:
    json.dump(rows, out, indent=2)
for row in rows:
    print(f"{row['engine']}: {row['events']} events, {row['mismatches']} mismatches")
EOF
