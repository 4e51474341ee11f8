#!/usr/bin/env python3
"""Runs every test binary of the workspace, prints the slowest tests, and ends with 'N passed, N failed'.

Plain `cargo test` does not say how long a test took; the test binaries do when asked, so they are run one by one here.
Arguments are passed on to each binary, e.g. a name filter or `--ignored`.
"""
import json
import os
import re
import subprocess
import sys
import time

SLOWEST = 15


def binaries():
    """Builds the tests; yields (crate directory, target name, executable)."""
    build = subprocess.run(
        ["cargo", "test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"],
        stdout=subprocess.PIPE, text=True)
    if build.returncode:
        sys.exit("the tests do not build")
    for line in build.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            yield os.path.dirname(message["manifest_path"]), message["target"]["name"], message["executable"]


def main():
    environment = dict(os.environ, RUSTC_BOOTSTRAP="1", RUST_BACKTRACE="1")
    passed = failed = 0
    timed, broken = [], []
    for directory, name, executable in binaries():
        start = time.monotonic()
        run = subprocess.Popen([executable, "-Z", "unstable-options", "--report-time", *sys.argv[1:]],
                               cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        crate = os.path.basename(directory)
        summary = None
        for line in run.stdout:
            sys.stdout.write(line)
            test = re.match(r"test (\S+)(?: - should panic)? \.\.\. (\w+) <([\d.]+)s>", line)
            if test:
                timed.append((float(test[3]), f"{crate}/{name} {test[1]}"))
            failure = re.match(r"test (\S+)(?: - should panic)? \.\.\. FAILED", line)
            if failure:
                broken.append(f"{crate}/{name} {failure[1]}")
            summary = re.search(r"test result: \w+\. (\d+) passed; (\d+) failed", line) or summary
        code = run.wait()
        if summary:
            passed += int(summary[1])
            failed += int(summary[2])
        if code and not (summary and int(summary[2])):
            failed += 1
            broken.append(f"{crate}/{name} ended with code {code}")
        print(f"{crate}/{name}: {time.monotonic() - start:.1f} s", flush=True)
    print(f"\nslowest of {len(timed)} tests:")
    for seconds, test in sorted(timed, reverse=True)[:SLOWEST]:
        print(f"  {seconds:7.2f} s  {test}")
    for test in broken:
        print(f"FAILED {test}")
    if passed + failed == 0:
        print("no test ran")
        failed = 1
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
