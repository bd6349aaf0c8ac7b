#!/usr/bin/env bash
# Builds the wheel and the source distribution of the Python package: installs what is missing and compiles.
#   python/build_wheel.sh [DIR]     the folder of the results; default: dist
set -euo pipefail
cd "$(dirname "$0")/.."

./quickstart.sh --install-only pybind11-dev python3-dev patchelf git
build=${KVCAST_BUILD:-build-wheel}
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DKVCAST_TESTS=OFF -DKVCAST_PYTHON=ON -DPython3_EXECUTABLE=/usr/bin/python3 >/dev/null
cmake --build "$build" --target kvcast _kvcast
/usr/bin/python3 python/kvcast_build.py wheel -b "$build" -o "${1:-dist}"
/usr/bin/python3 python/kvcast_build.py sdist -o "${1:-dist}"
