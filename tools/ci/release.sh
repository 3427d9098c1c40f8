#!/usr/bin/env bash
# All wheels of a tag, tried, with their page. Usage: tools/ci/release.sh TAG URL
#   TAG   v and the version, as python/metal_ops/_version.py has it
#   URL   the address that the wheels will have, less their names
# Leaves dist/release, dist/page (for GitHub Pages) and dist/notes.md (for the release on GitHub).
set -euo pipefail
cd "$(dirname "$0")/../.."
die() { echo "release: $*" >&2; exit 1; }
tag=${1:-} url=${2:-}
[[ -n $tag && $url = */ ]] || die "usage: tools/ci/release.sh TAG URL/"
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' python/metal_ops/_version.py)
[ "$tag" = "v$version" ] || die "the tag is $tag, and python/metal_ops/_version.py says $version; expected v$version"
# The changelog's lines of this version.
notes=$(awk -v heading="## [$version]" 'index($0, "## ") == 1 { on = index($0, heading) == 1; next } on' CHANGELOG.md)
[ -n "$notes" ] || die "CHANGELOG.md has no heading [$version]; move the entries of Unreleased there"
make release ARGS="--url $url"
mkdir -p dist/page
cp dist/release/index.html dist/release/SHA256SUMS dist/page/
{
  echo "Install: \`pip install --find-links PAGE 'tensorflow-metal-ops==$version+tf$(tools/setup.sh --releases | head -1)'\`" \
    "with the address of the page of wheels for PAGE."
  echo "$notes"
} >dist/notes.md
