#!/usr/bin/env bash
# Builds and runs every test: C++ suites under the sanitizers, then in release mode the suites that would take minutes
# under the sanitizers and all suites that check the program's output.
#   ./test.sh            everything
#   ./test.sh --quick    all suites, in release mode only
set -euo pipefail
cd "$(dirname "$0")"

./quickstart.sh --install-only catch2 clang-format chromium chromium-driver python3 python3-numpy \
  python3-jsonschema python3-yaml nodejs codespell librsvg2-bin libharfbuzz-bin fontconfig fonts-dejavu-core poppler-utils \
  libboost-mpi-dev openmpi-bin pybind11-dev python3-dev python3-pandas python3-nbclient python3-ipykernel python3-venv python3-torch patchelf binutils

jobs=$(nproc)
configure() { cmake -S . -B "$1" -G Ninja -DKVCAST_TESTS=ON "${@:2}" >/dev/null; }

sanitized=OFF
if [ "${1:-}" != --quick ]; then
  # Warnings are errors in the release build below; under the sanitizers g++ 12 gives false warnings in the standard library.
  echo "== Address and undefined-behaviour sanitizers"
  configure build-sanitize -DCMAKE_BUILD_TYPE=None -DKVCAST_SANITIZE=ON -DKVCAST_WERROR=OFF
  cmake --build build-sanitize -j "$jobs" -- --quiet
  # The address sanitizer keeps freed memory from reuse. With its default of 256 MB, tests that allocate much spend half
  # of their time in page faults.
  export ASAN_OPTIONS=quarantine_size_mb=16
  ctest --test-dir build-sanitize --output-on-failure -j "$jobs"
  sanitized=ON
fi
echo "== Release"
configure build -DCMAKE_BUILD_TYPE=Release -DKVCAST_SANITIZE=OFF -DKVCAST_TESTED_ELSEWHERE=$sanitized
cmake --build build -j "$jobs" -- --quiet
ctest --test-dir build --output-on-failure -j "$jobs"
