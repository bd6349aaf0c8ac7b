#!/usr/bin/env bash
# Builds the measuring programs for the GPU of this machine, checks every kernel and every pipeline against its reference,
# and measures: a first half of the kernels, pipelines, the rest of the kernels, what libraries reach in their place
# (library.py, where there is PyTorch), then a spread of the CPU's cases. Whatever is cut off leaves the best use of its
# minutes. A call ends by itself; call it until it says "finished": rows that OUT already has are not measured again.
# compute-sanitizer, where it is, looks for races and stray accesses before the CPU's turn.
#   kernels/measure.sh OUT_FOLDER [SECONDS]     SECONDS: of one call (480)
# Results lie in a folder below OUT_FOLDER for each GPU, named by its UUID, so that another card begins anew. Each call
# packs all that is worth bringing home into OUT_FOLDER/bring-home.tar.gz.
# Needs nvcc, a C++ compiler and bash; uses CMake where there is one. Seconds that the parts may take, all calls together:
#   KERNEL_SECONDS=660 PIPELINE_SECONDS=360 LIBRARY_SECONDS=90 SANITIZER_SECONDS=240 CPU_SECONDS=120
# Leaves OUT_FOLDER/UUID/{gpu,pipeline,cpu}.{json,csv}, library.json, skipped.txt (why rows have no number, and how many),
# refcheck-*.txt, sanitizer-*.txt, build.txt, log.txt and nvidia-smi.txt.
# Exit: 0 finished, 3 call it again, 1 something is wrong.
#   KVCAST_CUDA_ARCHS=90a    instead of asking the driver     KVCAST_KERNELS_BUILD=FOLDER    where to build
#   KVCAST_NVCC=FILE         where it is neither on the PATH nor under /usr/local; KVCAST_SANITIZER=FILE likewise
#   KVCAST_EMULATED=FOLDER   rehearses all this without a GPU: programs of that folder, small cases, no times
set -euo pipefail
out=${1:?usage: kernels/measure.sh OUT_FOLDER [SECONDS]}
seconds=${2:-480}
source_folder=$(cd "$(dirname "$0")" && pwd)
build=${KVCAST_KERNELS_BUILD:-$source_folder/../build-kernels}
emulated=${KVCAST_EMULATED:-}
started=$(date +%s)
top=$out
card=$(nvidia-smi --query-gpu=uuid --format=csv,noheader 2> /dev/null | head -1 | tr -cd 'A-Za-z0-9-') || true
out=$top/${card:-no-uuid}
[ -z "$emulated" ] || out=$top/emulated
mkdir -p "$out"
pack() {
  local packed
  packed=$(mktemp) && tar -czf "$packed" --exclude=bring-home.tar.gz -C "$top" . && mv "$packed" "$top/bring-home.tar.gz" || true
}
trap pack EXIT
left() { echo $((seconds - ($(date +%s) - started))); }
fail() { echo "$*" >&2; exit 1; }
. "$source_folder/architectures.sh"

find_nvcc() {
  [ "${KVCAST_NVCC:-}" = none ] && return 0
  [ -z "${KVCAST_NVCC:-}" ] || { echo "$KVCAST_NVCC" && return 0; }
  command -v nvcc || { [ -x /usr/local/cuda/bin/nvcc ] && echo /usr/local/cuda/bin/nvcc; } ||
    ls -d /usr/local/cuda-*/bin/nvcc 2> /dev/null | sort -V | tail -1
}
# Of all GPUs here: which of them is used is CUDA's choice.
architectures() {
  local capabilities one list=""
  capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | tr -d '. ' | grep -x '[0-9]*' | sort -u) || true
  [ -n "$capabilities" ] || capabilities=$("$(dirname "$nvcc")/__nvcc_device_query" 2> /dev/null | cut -d, -f1) || true
  [ -n "$capabilities" ] || fail "neither nvidia-smi nor nvcc names the GPU: give KVCAST_CUDA_ARCHS"
  for one in $capabilities; do
    # Hopper's own instructions need the a.
    if [ "$one" = 90 ]; then one=90a; fi
    [ "${one%a}" -lt 80 ] || list="$list;$one"
  done
  [ -n "$list" ] || fail "the kernels need compute capability 8.0 (Ampere) or newer, this GPU has $capabilities"
  echo "${list#;}"
}

# Without CMake, or where it fails: the same sources and options, one after another in as many processes as cores.
build_by_hand() {
  # The last program that is linked, and nothing changed since.
  [ ! -x "$build/kvcast-kernels-cpu" ] || [ -n "$(find "$source_folder" -newer "$build/kvcast-kernels-cpu" -type f)" ] || return 0
  local flags=(-std=c++20 -O3 -diag-suppress=177 -I"$source_folder" -Xcompiler=-march=native,-fopenmp-simd
    "-DKVCAST_GIT=\"by hand\"" "-DKVCAST_COMPILER=\"nvcc\"")
  local objects="$build/objects" file links=(-ldl -lpthread "-Xlinker=-rpath=$(dirname "$nvcc")/../lib64")
  mapfile -t -O ${#flags[@]} flags < <(architecture_flags "$nvcc" "$KVCAST_CUDA_ARCHS")
  mkdir -p "$objects"
  echo '#include <cublas_v2.h>' > "$objects/blas.cu"
  if "$nvcc" -E "$objects/blas.cu" -o "$objects/blas.txt"; then
    flags+=(-DKVCAST_CUBLAS) links+=(-lcublas)
  else
    # A toolkit without it: PyTorch's packages bring one, under names with a version.
    local library folder
    for library in $(python3 -c 'import nvidia, glob
for p in nvidia.__path__: print(*glob.glob(p + "/cu[1-9]*/lib/libcublas.so.*") + glob.glob(p + "/cublas/lib/libcublas.so.*"))'); do
      folder=${library%/lib/*}
      "$nvcc" --version | grep -q "release ${library##*.}\." && [ -f "$folder/include/cublas_v2.h" ] || continue
      flags+=(-DKVCAST_CUBLAS "-Xcompiler=-idirafter,$folder/include")
      links+=("$library" "${library%/*}/libcublasLt.so.${library##*.}" "-Xlinker=-rpath=${library%/*}")
      break
    done
  fi
  for file in "$source_folder"/{harness,reference,device,cuda,cpu,pipeline}/*.{cpp,cu}; do
    case "$file" in */\*.* | */emulat* | */*_emulated.cpp | */emulated_main.cpp | */lazy_queue.cpp) continue ;; esac
    echo "$file"
  done > "$objects/sources"
  export nvcc objects source_folder
  xargs -P "$(nproc)" -I{} bash -c '
    name=${1#"$source_folder"/} kind=cu
    case "$name" in harness/* | reference/* | cpu/*) kind=c++ ;; esac
    "$nvcc" "${@:2}" -x $kind -c "$1" -o "$objects/${name//\//_}.o"' _ {} "${flags[@]}" < "$objects/sources" || return 1
  local common=("$objects"/harness_*.o "$objects"/reference_*.o)
  "$nvcc" "${common[@]}" "$objects"/device_*.o "$objects"/cuda_*.o "${links[@]}" -o "$build/kvcast-kernels" &&
    "$nvcc" "${common[@]}" "$objects"/device_*.o "$objects"/pipeline_*.o "${links[@]}" -o "$build/kvcast-pipeline" &&
    "$nvcc" "${common[@]}" "$objects"/cpu_*.o -lpthread -o "$build/kvcast-kernels-cpu"
}
build_by_cmake() {
  command -v cmake > /dev/null || return 1
  cmake -S "$source_folder" -B "$build" -DCMAKE_BUILD_TYPE=Release -DKVCAST_CUDA_ARCHS="$KVCAST_CUDA_ARCHS" \
    -DCMAKE_CUDA_COMPILER="$nvcc" &&
    cmake --build "$build" -j "$(nproc)" --target kvcast-kernels kvcast-pipeline kvcast-kernels-cpu
}

suffix=""
kernel_options=() pipeline_options=() cpu_options=()
if [ -n "$emulated" ]; then
  build=$emulated suffix=-emulated
  kernel_options=(--bench topk --axis rows=1 --axis n=250 --axis k=64)
  pipeline_options=(--bench full --bench quest --axis context=256 --axis batch=1 --axis layers=1 --axis steps=2
    --axis hidden=64 --axis q_heads=4 --axis kv_heads=2 --axis dim=64 --axis ffn=64 --axis vocab=64 --axis page=16
    --axis budget=64)
  cpu_options=(--bench cpu_topk --axis n=256 --axis k=64 --axis rows=1)
else
  nvcc=$(find_nvcc) || nvcc=""
  [ -n "$nvcc" ] || fail "no nvcc on the PATH or under /usr/local"
  nvidia-smi -q > "$out/nvidia-smi.txt" 2>&1 || true
  KVCAST_CUDA_ARCHS=${KVCAST_CUDA_ARCHS:-$(architectures)}
  build_by_cmake > "$out/build.txt" 2>&1 || { mkdir -p "$build" && build_by_hand >> "$out/build.txt" 2>&1; } ||
    { tail -20 "$out/build.txt"; fail "the programs do not build; $out/build.txt says why"; }
fi
kernels=$build/kvcast-kernels$suffix pipeline=$build/kvcast-pipeline$suffix cpu=$build/kvcast-kernels-cpu
[ -x "$cpu" ] || cpu=$build/../kvcast-kernels-cpu

# Seconds of a part in earlier calls.
spent() { cat "$out/.spent-$1" 2> /dev/null || echo 0; }

# Do races, stray accesses or barriers that not all threads reach show in the small cases? 0: no, or nothing can look.
sanitize() {
  local tool name program begun mine status
  [ -n "$sanitizer" ] || { echo "no compute-sanitizer: races and stray accesses were not looked for"; return 0; }
  for name in kernels pipeline; do
    program=${!name}
    for tool in memcheck racecheck synccheck; do
      [ "$out/.sane-$name-$tool" -nt "$program" ] && continue
      mine=$((${SANITIZER_SECONDS:-240} - $(spent sanitizer)))
      [ "$mine" -gt 5 ] || return 0
      [ "$mine" -lt 75 ] || mine=75
      [ "$mine" -lt "$(left)" ] || mine=$(left)
      [ "$mine" -gt 5 ] || return 3
      begun=$(date +%s) status=0
      # Calls that the driver refuses are the programs' business, which skip what they would have measured.
      timeout -k 10 "$mine" "$sanitizer" --tool "$tool" --error-exitcode 9 --report-api-errors no --print-limit 20 \
        --log-file "$out/sanitizer-$name-$tool.txt" "$program" --refcheck --patience 100 \
        >> "$out/log.txt" 2>&1 || status=$?
      echo $(($(spent sanitizer) + $(date +%s) - begun)) > "$out/.spent-sanitizer"
      case $status in
        0) echo "$tool of $name: nothing" ;;
        124 | 137) echo "$tool of $name: nothing in $mine s, the rest was not looked at" ;;
        9) echo "$tool of $name: errors; $out/sanitizer-$name-$tool.txt" >&2 && wrong=yes ;;
        *) echo "$tool of $name: could not look ($status); $out/sanitizer-$name-$tool.txt" ;;
      esac
      touch "$out/.sane-$name-$tool"
    done
  done
}

# A program that has passed is not checked again, unless it has been built anew. Kept with the results: it speaks of both.
check() { # name, program, its options
  local passed="$out/.passed-$1" said="$out/refcheck-$1.txt"
  [ "$passed" -nt "$2" ] && return 0
  timeout -k 10 $(($(left) > 60 ? $(left) : 60)) "$2" --refcheck "${@:3}" > "$said" 2>&1 || {
    ! grep "no CUDA device" "$said" || fail "$1: the driver and this CUDA do not work together; $out/nvidia-smi.txt"
    grep -E "WRONG|failed|broke" "$said" | tail -5
    echo "$1: the reference check failed; $said" >&2
    return 1
  }
  touch "$passed"
}
# Benchmarks that are wrong give no rows (the programs see to it), so that the others are measured all the same.
check kernels "$kernels" ${emulated:+--bench topk} || wrong=yes
check pipeline "$pipeline" ${emulated:+--bench full} || wrong=yes
check cpu "$cpu" ${emulated:+--bench cpu_topk} || wrong=yes
sanitizer=""
[ -n "$emulated" ] || sanitizer=${KVCAST_SANITIZER:-$(command -v compute-sanitizer || ls "$(dirname "$nvcc")/compute-sanitizer" 2> /dev/null || true)}

# Measures until the part's seconds, or the call's, are spent. 0: nothing is left of it, 3: call again.
measure() { # name, program, seconds of all calls, its options
  local mine begun status restarts=0
  while true; do
    mine=$(($3 - $(spent "$1")))
    [ "$mine" -gt 0 ] || return 0
    [ "$mine" -lt "$(left)" ] || mine=$(left)
    [ "$mine" -gt 5 ] || return 3
    begun=$(date +%s) status=0
    timeout -k 10 $((mine + 240)) "$2" --json "$out/$1.json" --csv "$out/$1.csv" --timeout 1.5 --min-time 0.1 "${@:4}" \
      --stop-after "$mine" >> "$out/log.txt" 2>&1 || status=$?
    echo $(($(spent "$1") + $(date +%s) - begun)) > "$out/.spent-$1"
    echo "$1: $(tail -1 "$out/log.txt")"
    # A device that broke works again for the next process, and what broke it has a row that says so.
    [ $status -eq 4 ] && [ $((restarts += 1)) -le 20 ] || break
    wrong=yes
  done
  case $status in
    0) return 0 ;;
    1 | 3 | 4)
      [ $status -eq 3 ] || wrong=yes
      # Spent seconds are enough: cases are spread over all.
      ! tail -1 "$out/log.txt" | grep -qE '(^|[ ,])0 left' && [ "$(spent "$1")" -lt "$3" ] && return 3
      return 0 ;;
    *) echo "$1 ended with $status; $out/log.txt" >&2 && return "$status" ;;
  esac
}
# What libraries reach in cases that the kernels' results have. No PyTorch, no GPU for it: nothing to do.
libraries() {
  local mine=$((${LIBRARY_SECONDS:-90} - $(spent library))) begun status=0
  [ "$mine" -lt "$(left)" ] || mine=$(left)
  [ -s "$out/gpu.json" ] && [ "$mine" -gt 5 ] && [ ! "$out/.libraries" -nt "$out/gpu.json" ] || return 0
  begun=$(date +%s)
  timeout -k 10 $((mine + 60)) python3 "$source_folder/library.py" --like "$out/gpu.json" --json "$out/library.json" \
    --seconds "$mine" ${emulated:+--device cpu} >> "$out/log.txt" 2>&1 || status=$?
  echo $(($(spent library) + $(date +%s) - begun)) > "$out/.spent-library"
  case $status in 0 | 77) touch "$out/.libraries" ;; esac
  echo "libraries: $(tail -1 "$out/log.txt")"
}
status=0
measure gpu "$kernels" $((${KERNEL_SECONDS:-660} / 2)) "${kernel_options[@]}" || status=$?
[ $status -eq 3 ] || { measure pipeline "$pipeline" "${PIPELINE_SECONDS:-360}" "${pipeline_options[@]}" || status=$?; }
[ $status -eq 3 ] || { measure gpu "$kernels" "${KERNEL_SECONDS:-660}" "${kernel_options[@]}" || status=$?; }
[ $status -eq 3 ] || libraries
[ $status -eq 3 ] || sanitize || status=$?
# The host of a GPU has many cores and time on a GPU is scarce: a spread of the CPU's cases is enough.
[ $status -eq 3 ] || { measure cpu "$cpu" "${CPU_SECONDS:-120}" "${cpu_options[@]}" || status=$?; }
# Cases stand in brackets: the same reason for many of them is one line.
for name in gpu pipeline cpu; do
  [ ! -f "$out/$name.json" ] || grep -oE '"bench":"[^"]*"|"skip_reason":"([^"\\]|\\.)*"' "$out/$name.json"
done | awk -F'":"' '/^"bench/ {bench = $2} /^"skip/ {gsub(/\[[^]]*\] */, "", $2); print bench $2}' | tr '"' ' ' | sort | uniq -c | sort -rn > "$out/skipped.txt" || true
[ $status -ne 3 ] || { echo "call it again"; exit 3; }
[ $status -eq 0 ] && [ -z "${wrong:-}" ] || exit 1
echo "finished; at home: kvcast calibrate cpu --from $out/cpu.json -o HOST.yaml"
also=""
[ ! -s "$out/library.json" ] || also=" --from $out/library.json"
echo "                   kvcast calibrate cuda --from $out/gpu.json$also --host HOST.yaml --profile NEAREST -o PROFILE.yaml"
echo "                   kvcast validate policy_kernels --from $out/gpu.json --profile PROFILE.yaml"
echo "                   kvcast validate gpu_pipeline --from $out/pipeline.json --profile PROFILE.yaml"
