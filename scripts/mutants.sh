#!/usr/bin/env bash
# Breaks each rule in the printed RTL, one at a time, and writes target/mutants.json: which mutants the tests kill.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -f target/mutants*.json
status=0
for binary in sender receiver tx frame; do
    cargo test -p mprdma-hw --test "$binary" -- --ignored --exact mutants::every_mutant_dies --nocapture || status=1
done
python3 - <<'PYTHON' || status=1
import json, os, sys
binaries = ("sender", "receiver", "tx", "frame")
missing = [b for b in binaries if not os.path.exists(f"target/mutants-{b}.json")]
if missing:
    sys.exit(f"no result of {', '.join(missing)}: see the errors of its list above")
parts = [json.load(open(f"target/mutants-{b}.json")) for b in binaries]
result = {
    "total": sum(part["total"] for part in parts),
    "killed": sum(part["killed"] for part in parts),
    "survivors": [name for part in parts for name in part["survivors"]],
    "mutants": [row for part in parts for row in part["mutants"]],
}
with open("target/mutants.json", "w") as out:
    json.dump(result, out, indent=2)
for name in result["survivors"]:
    print(f"SURVIVED {name}")
print(f"{result['killed']} of {result['total']} mutants killed")
sys.exit(bool(result["survivors"]))
PYTHON
exit $status
