#!/usr/bin/env bash
# Builds the measuring programs for the GPU of this machine, checks every kernel against its reference, and measures all
# cases. Rows that OUT already has are not measured again: call it until it says that nothing is left.
#   kernels/measure.sh OUT_FOLDER [SECONDS]     SECONDS: begin no case after so long (500)
# Leaves OUT_FOLDER/gpu.json, gpu.csv, cpu.json, cpu.csv, refcheck.txt and build.txt. Exit: 0 done, 3 cases are left.
set -euo pipefail
out=${1:?usage: kernels/measure.sh OUT_FOLDER [SECONDS]}
seconds=${2:-500}
source_folder=$(cd "$(dirname "$0")" && pwd)
build=${KVCAST_KERNELS_BUILD:-$source_folder/../build-kernels}
started=$(date +%s)
mkdir -p "$out"

if [ -z "${KVCAST_CUDA_ARCHS:-}" ]; then
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d '. ')
  # Hopper's own instructions need the a.
  KVCAST_CUDA_ARCHS=$([ "$capability" = 90 ] && echo 90a || echo "$capability")
fi
cmake -S "$source_folder" -B "$build" -DCMAKE_BUILD_TYPE=Release -DKVCAST_CUDA_ARCHS="$KVCAST_CUDA_ARCHS" > "$out/build.txt" 2>&1 ||
  { tail -20 "$out/build.txt"; exit 1; }
cmake --build "$build" -j "$(nproc)" --target kvcast-kernels kvcast-kernels-cpu >> "$out/build.txt" 2>&1 ||
  { tail -20 "$out/build.txt"; exit 1; }

# Kept beside the binaries that it speaks of: a rebuild checks again.
passed=$build/refcheck-passed
if [ "$passed" -ot "$build/kvcast-kernels" ] || [ "$passed" -ot "$build/kvcast-kernels-cpu" ]; then
  { "$build/kvcast-kernels" --refcheck && "$build/kvcast-kernels-cpu" --refcheck; } > "$out/refcheck.txt" 2>&1 ||
    { grep -E "WRONG|failed|no CUDA" "$out/refcheck.txt"; exit 1; }
  touch "$passed"
fi

left() { echo $(($1 - ($(date +%s) - started))); }
measure() { # program, name, option that bounds the time, seconds
  [ "$4" -gt 0 ] || return 3
  "$build/$1" --json "$out/$2.json" --csv "$out/$2.csv" "$3" "$4" --timeout 1.5 --min-time 0.1 | tail -1
  return "${PIPESTATUS[0]}"
}
status=0
measure kvcast-kernels gpu --stop-after "$(left "$seconds")" || status=$?
[ "$status" -eq 0 ] || exit "$status"
# The host of a GPU has many cores and the lease of a GPU is short: a spread of the CPU's cases is enough.
measure kvcast-kernels-cpu cpu --budget "$(left "$seconds")" || status=$?
exit "$status"
