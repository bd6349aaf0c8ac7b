#!/usr/bin/env bash
# Builds what a release consists of into a folder: the Debian package, the wheel, the source distribution, and, where
# Docker runs, an image kvcast:VERSION.
#   ./release.sh [DIR]     default: dist
set -euo pipefail
cd "$(dirname "$0")"

out=${1:-dist}
mkdir -p "$out"
export KVCAST_BUILD=${KVCAST_BUILD:-build-wheel}
python/build_wheel.sh "$out"
cmake --build "$KVCAST_BUILD"
cpack --config "$KVCAST_BUILD/CPackConfig.cmake" -B "$out/deb" >/dev/null
mv "$out"/deb/*.deb "$out" && rm -r "$out/deb"
if docker info >/dev/null 2>&1; then
  version=$(sed -n 's/^project(kvcast VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
  docker build -t "kvcast:$version" .
fi
ls -l "$out"
