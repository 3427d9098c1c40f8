#!/usr/bin/env bash
# Makes the release on GitHub, with the files of tools/ci/release.sh. Usage: GH_TOKEN=... tools/ci/publish.sh TAG FOLDER
# A release that is there already gets the files that it lacks, and keeps the others.
set -euo pipefail
tag=$1 folder=$2
(cd "$folder/release" && sha256sum -c SHA256SUMS)
gh release view "$tag" >/dev/null 2>&1 || gh release create "$tag" --verify-tag --title "$tag" --notes-file "$folder/notes.md"
there=$(gh release view "$tag" --json assets --jq '.assets[].name')
for file in "$folder"/release/*.whl "$folder/release/SHA256SUMS"; do
  grep -qxF "${file##*/}" <<<"$there" || gh release upload "$tag" "$file"
done
