#!/usr/bin/env bash
# From a clean clone to a report: installs missing packages, builds kvcast, runs a sweep and writes its report.
#   ./quickstart.sh                 all steps; a second run rebuilds nothing and resumes from the store
#   ./quickstart.sh --install-only [PACKAGE]...  only installs packages, including the ones named
set -euo pipefail
cd "$(dirname "$0")"

BUILD=${KVCAST_BUILD:-build}
OUT=${KVCAST_OUT:-reports/out/quickstart}
PACKAGES=(g++ cmake ninja-build libyaml-cpp-dev libfmt-dev nlohmann-json3-dev libcli11-dev libsqlite3-dev
          libboost-dev libboost-iostreams-dev libeigen3-dev libmuparser-dev libxxhash-dev
          libjs-vega)

say() { printf '\n== %s\n' "$*"; }

install_packages() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    say "All packages are installed"
    return
  fi
  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "These packages are missing and neither root nor sudo is available: ${missing[*]}" >&2; exit 1; }
    root=(sudo)
  fi
  say "Installing with apt-get: ${missing[*]}"
  "${root[@]}" apt-get update -qq
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

install_only=false
case "${1:-}" in
  "") ;;
  --install-only) install_only=true; shift; PACKAGES+=("$@") ;;
  *) echo "usage: $0 [--install-only [PACKAGE]...]" >&2; exit 2 ;;
esac

command -v apt-get >/dev/null || { echo "quickstart.sh installs through apt-get (Debian 12 or later); install by hand: ${PACKAGES[*]}" >&2; exit 1; }
install_packages "${PACKAGES[@]}"
if $install_only; then exit 0; fi

say "Building kvcast (release) in $BUILD/"
cmake -S . -B "$BUILD" -G Ninja -DCMAKE_BUILD_TYPE=Release -DKVCAST_TESTS=OFF >/dev/null
cmake --build "$BUILD" --target kvcast

mkdir -p "$OUT"
say "Sweeping configs/sweeps/quickstart.yaml"
"$BUILD/kvcast" sweep configs/sweeps/quickstart.yaml -o "$OUT"

say "Writing the report"
"$BUILD/kvcast" report "$OUT" -o "$OUT/report"
