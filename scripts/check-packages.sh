#!/usr/bin/env bash
# Packages each library, unpacks the packages side by side, and compiles them with all features: scripts/check-packages.sh
# So missing files cause the same errors as for a user. Needs no network, and builds into the workspace's target folder.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
libraries=(queue-cron queue-macros queue-core queue-embedded queue-worker)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A copy that permits publishing: packages with `publish = false` cannot depend on each other.
mkdir "$work/copy" "$work/alone"
git ls-files -z --cached --others --exclude-standard | tar --null --files-from - --create | tar --extract --directory "$work/copy"
sed -i 's/^publish = false$/publish = true/' "$work/copy/Cargo.toml"
(cd "$work/copy" && CARGO_TARGET_DIR=$work/packed cargo package --offline --no-verify --quiet "${libraries[@]/#/--package=}")

# Only the packages and the workspace's dependencies are available, in the same versions.
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
cp Cargo.lock "$work/alone"
printf '[workspace]\nresolver = "3"\nmembers = ["queue-*"]\n[profile.dev]\ndebug = "line-tables-only"\n[patch.crates-io]\n' >"$work/alone/Cargo.toml"
for library in "${libraries[@]}"; do
  tar --extract --gzip --file "$work/packed/package/$library-$version.crate" --directory "$work/alone"
  echo "$library = { path = \"$library-$version\" }" >>"$work/alone/Cargo.toml"
done
cd "$work/alone"
CARGO_TARGET_DIR=$root/target cargo check --offline --quiet --workspace --all-features
echo "${#libraries[@]} libraries build from their packages"
