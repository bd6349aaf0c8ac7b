#!/usr/bin/env bash
# Builds and runs every test: the suites under the sanitizers first, then all of them in release mode.
#   ./test.sh            everything
#   ./test.sh --quick    release mode only
set -euo pipefail
cd "$(dirname "$0")"

./quickstart.sh --install-only
PACKAGES=(catch2 clang-format chromium chromium-driver python3)
missing=()
for package in "${PACKAGES[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "== Installing for the tests: ${missing[*]}"
  root=(); [ "$(id -u)" -eq 0 ] || root=(sudo)
  "${root[@]}" apt-get update -qq
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

jobs=$(nproc)
suite() { # name, folder, cmake options...
  echo "== $1"
  cmake -S . -B "$2" -G Ninja -DKVCAST_TESTS=ON "${@:3}" >/dev/null
  cmake --build "$2" -j "$jobs" -- --quiet
  ctest --test-dir "$2" --output-on-failure -j "$jobs"
}

if [ "${1:-}" != --quick ]; then
  # Warnings are errors in the release build below; under the sanitizers g++ 12 warns wrongly inside the standard library.
  suite "Address and undefined-behaviour sanitizers" build-sanitize -DCMAKE_BUILD_TYPE=None -DKVCAST_SANITIZE=ON -DKVCAST_WERROR=OFF
fi
suite "Release" build -DCMAKE_BUILD_TYPE=Release -DKVCAST_SANITIZE=OFF
