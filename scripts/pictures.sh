#!/bin/sh
# Renews the pictures of the documents: plays the browser tests, which take a screenshot of each page, and copies the pages that are shown.
set -eu
cd "$(dirname "$0")/.."
cargo browser
cp target/screenshots/overview-1280-light.png docs/pictures/overview.png
cp target/screenshots/job-dead-1280-light.png docs/pictures/job.png
