#!/usr/bin/env bash
# Packs each library, unpacks them beside each other, and compiles them from there with all their features: scripts/check-packages.sh
# What a package lacks is told as a user would meet it. Needs no network, and builds into the workspace's target folder.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
libraries=(queue-macros queue-core queue-embedded queue-worker)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A copy that says it may be published: packages that may not be cannot depend on each other.
mkdir "$work/copy" "$work/alone"
git ls-files -z --cached --others --exclude-standard | tar --null --files-from - --create | tar --extract --directory "$work/copy"
sed -i 's/^publish = false$/publish = true/' "$work/copy/Cargo.toml"
(cd "$work/copy" && CARGO_TARGET_DIR=$work/packed cargo package --offline --no-verify --quiet "${libraries[@]/#/--package=}")

# Nothing is in reach but the packages, and what the workspace depends on, in the same versions.
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
