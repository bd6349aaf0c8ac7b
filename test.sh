#!/usr/bin/env bash
# Builds and runs every test: the suites under the sanitizers first, then all of them in release mode.
#   ./test.sh            everything
#   ./test.sh --quick    release mode only
set -euo pipefail
cd "$(dirname "$0")"

./quickstart.sh --install-only catch2 clang-format chromium chromium-driver python3

jobs=$(nproc)
configure() { cmake -S . -B "$1" -G Ninja -DKVCAST_TESTS=ON "${@:2}" >/dev/null; }

if [ "${1:-}" != --quick ]; then
  # The suites of all that reads foreign bytes, and of the engine and the store. Warnings are errors in the release build
  # below; under the sanitizers g++ 12 warns wrongly inside the standard library.
  SANITIZED=(unit_base unit_config unit_trace unit_hardware unit_engine unit_store unit_report oracle_engine)
  echo "== Address and undefined-behaviour sanitizers"
  configure build-sanitize -DCMAKE_BUILD_TYPE=None -DKVCAST_SANITIZE=ON -DKVCAST_WERROR=OFF
  cmake --build build-sanitize -j "$jobs" --target "${SANITIZED[@]}" -- --quiet
  ctest --test-dir build-sanitize --output-on-failure -j "$jobs" -R "^($(IFS='|'; echo "${SANITIZED[*]}"))$"
fi
echo "== Release"
configure build -DCMAKE_BUILD_TYPE=Release -DKVCAST_SANITIZE=OFF
cmake --build build -j "$jobs" -- --quiet
ctest --test-dir build --output-on-failure -j "$jobs"
