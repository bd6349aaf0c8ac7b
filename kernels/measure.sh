#!/usr/bin/env bash
# Builds the measuring programs for the GPU of this machine, checks every kernel and every pipeline against its reference,
# and measures half of the kernels, the pipelines, the rest of the kernels, those of sparse attention, libraries and systems (the
# Python programs of this folder, if PyTorch is installed), and a sample of the CPU's cases. This order puts the most useful measurements
# first, in case a run is cut off. A call ends by itself; call the script again until it prints "finished". Rows that OUT
# already has are not measured again. If compute-sanitizer is installed, it looks for races and stray accesses before the
# CPU is measured.
#   kernels/measure.sh OUT_FOLDER [SECONDS]     SECONDS: time limit of one call (480)
# Each GPU has a subfolder of OUT_FOLDER, named by its UUID, so that a second GPU gets its own results. Each call packs
# all results into OUT_FOLDER/bring-home.tar.gz.
# Needs nvcc, a C++ compiler and bash; uses CMake if available. Time limits of the parts in seconds, all calls together:
#   KERNEL_SECONDS=660 PIPELINE_SECONDS=360 ENGINE_SECONDS=120 LIBRARY_SECONDS=90 ATTENTION_SECONDS=100 TABLE_SECONDS=85
#   SANITIZER_SECONDS=240 CPU_SECONDS=120 SYSTEM_SECONDS=60 (each of transformers_*.py)
# Writes OUT_FOLDER/UUID/{gpu,pipeline,attention,cpu}.{json,csv}, a JSON file for each Python program, skipped.txt (reasons of rows without a number, with
# counts), refcheck-*.txt, sanitizer-*.txt, build.txt, log.txt and nvidia-smi.txt.
# Exit codes: 0 finished, 3 call the script again, 1 an error.
#   KVCAST_CUDA_ARCHS=90a    instead of the driver's answer     KVCAST_KERNELS_BUILD=FOLDER    build folder
#   KVCAST_WHEELS=FOLDER     wheels of libraries (FlashInfer, FlashAttention) that library.py installs first
#   KVCAST_NVCC=FILE         if it is neither on the PATH nor in /usr/local; KVCAST_SANITIZER=FILE likewise
#   KVCAST_EMULATED=FOLDER   rehearses everything without a GPU: programs of that folder, small cases, no times
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
# Prints the architectures of all GPUs of this machine, because CUDA chooses which one is used.
architectures() {
  local capabilities one list=""
  capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | tr -d '. ' | grep -x '[0-9]*' | sort -u) || true
  [ -n "$capabilities" ] || capabilities=$("$(dirname "$nvcc")/__nvcc_device_query" 2> /dev/null | cut -d, -f1) || true
  [ -n "$capabilities" ] || fail "neither nvidia-smi nor nvcc identifies the GPU: set KVCAST_CUDA_ARCHS"
  for one in $capabilities; do
    # Hopper's architecture-specific instructions need the suffix a.
    if [ "$one" = 90 ]; then one=90a; fi
    [ "${one%a}" -lt 80 ] || list="$list;$one"
  done
  [ -n "$list" ] || fail "the kernels need compute capability 8.0 (Ampere) or newer, this GPU has $capabilities"
  echo "${list#;}"
}

# Builds without CMake, or after CMake has failed: the same sources and options, in one process per core.
build_by_hand() {
  # Nothing is rebuilt if no source is newer than the program that is linked last.
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
    # The toolkit has no cuBLAS; PyTorch's packages contain one, in files named by version.
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
  [ -n "$nvcc" ] || fail "no nvcc on the PATH or in /usr/local"
  nvidia-smi -q > "$out/nvidia-smi.txt" 2>&1 || true
  KVCAST_CUDA_ARCHS=${KVCAST_CUDA_ARCHS:-$(architectures)}
  build_by_cmake > "$out/build.txt" 2>&1 || { mkdir -p "$build" && build_by_hand >> "$out/build.txt" 2>&1; } ||
    { tail -20 "$out/build.txt"; fail "the programs do not build; see $out/build.txt"; }
fi
kernels=$build/kvcast-kernels$suffix pipeline=$build/kvcast-pipeline$suffix cpu=$build/kvcast-kernels-cpu
[ -x "$cpu" ] || cpu=$build/../kvcast-kernels-cpu

# Prints the seconds that a part took in earlier calls.
spent() { cat "$out/.spent-$1" 2> /dev/null || echo 0; }

# Looks for races, stray accesses and barriers that not all threads reach in the small cases; returns 3 without time left.
sanitize() {
  local tool name program begun mine status
  [ -n "$sanitizer" ] || { echo "no compute-sanitizer: races and stray accesses were not checked"; return 0; }
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
      # Calls that the driver refuses are handled by the programs, which skip the affected cases.
      timeout -k 10 "$mine" "$sanitizer" --tool "$tool" --error-exitcode 9 --report-api-errors no --print-limit 20 \
        --log-file "$out/sanitizer-$name-$tool.txt" "$program" --refcheck --patience 100 \
        >> "$out/log.txt" 2>&1 || status=$?
      echo $(($(spent sanitizer) + $(date +%s) - begun)) > "$out/.spent-sanitizer"
      case $status in
        0) echo "$tool of $name: no errors" ;;
        124 | 137) echo "$tool of $name: no errors in $mine s; the remaining cases were not checked" ;;
        9) echo "$tool of $name: errors; see $out/sanitizer-$name-$tool.txt" >&2 && wrong=yes ;;
        *) echo "$tool of $name: could not run ($status); see $out/sanitizer-$name-$tool.txt" ;;
      esac
      touch "$out/.sane-$name-$tool"
    done
  done
}

# Runs a program's reference check, unless it has passed since the program was built. The marker is kept with the results,
# because it belongs to both GPU and program.
check() { # name, program, its options
  local passed="$out/.passed-$1" said="$out/refcheck-$1.txt"
  [ "$passed" -nt "$2" ] && return 0
  timeout -k 10 $(($(left) > 60 ? $(left) : 60)) "$2" --refcheck "${@:3}" > "$said" 2>&1 || {
    ! grep "no CUDA device" "$said" || fail "$1: driver and CUDA toolkit are incompatible; see $out/nvidia-smi.txt"
    grep -E "WRONG|failed|broke" "$said" | tail -5
    echo "$1: the reference check failed; see $said" >&2
    return 1
  }
  touch "$passed"
}
# The programs write no rows for benchmarks with wrong results, so the others can still be measured.
check kernels "$kernels" ${emulated:+--bench topk} || wrong=yes
check pipeline "$pipeline" ${emulated:+--bench full} || wrong=yes
check cpu "$cpu" ${emulated:+--bench cpu_topk} || wrong=yes
sanitizer=""
[ -n "$emulated" ] || sanitizer=${KVCAST_SANITIZER:-$(command -v compute-sanitizer || ls "$(dirname "$nvcc")/compute-sanitizer" 2> /dev/null || true)}

# Measures until the time of the part or of the call is used up. Returns 0 if the part is done, 3 if it needs another call.
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
    # After a device error the next process can use the device again; the row of the case that caused it states the error.
    [ $status -eq 4 ] && [ $((restarts += 1)) -le 20 ] || break
    wrong=yes
  done
  case $status in
    0) return 0 ;;
    1 | 3 | 4)
      [ $status -eq 3 ] || wrong=yes
      # A part whose time is used up is done: its measured cases are spread over all cases.
      ! tail -1 "$out/log.txt" | grep -qE '(^|[ ,])0 left' && [ "$(spent "$1")" -lt "$3" ] && return 3
      return 0 ;;
    *) echo "$1 ended with status $status; see $out/log.txt" >&2 && return "$status" ;;
  esac
}
# Runs a Python program, if any of its time is left. It ends with 77 if a package or a GPU that PyTorch can use is missing.
script() { # name, seconds of all calls, program and options; SECONDS_LEFT among them becomes the time that it has
  local mine=$(($2 - $(spent "$1"))) begun status=0 name=$1 arguments=("${@:4}")
  [ "$mine" -lt "$(left)" ] || mine=$(left)
  [ "$mine" -gt 5 ] && [ ! "$out/.done-$name" -nt "$out/gpu.json" ] || return 0
  begun=$(date +%s)
  arguments=("${arguments[@]/#SECONDS_LEFT/$mine}")
  timeout -k 10 $((mine + 60)) python3 "$source_folder/$3" "${arguments[@]}" >> "$out/log.txt" 2>&1 || status=$?
  echo $(($(spent "$name") + $(date +%s) - begun)) > "$out/.spent-$name"
  case $status in 0 | 77) touch "$out/.done-$name" ;; esac
  echo "$name: $(tail -1 "$out/log.txt")"
}
# Measures libraries and systems at the cases of the kernels' results, and the host's memory.
scripts() {
  [ -s "$out/gpu.json" ] || return 0
  local wheels=(${KVCAST_WHEELS:+--wheels "$KVCAST_WHEELS"} ${emulated:+--device cpu}) timed=(--seconds SECONDS_LEFT)
  script library "${LIBRARY_SECONDS:-90}" library.py --like "$out/gpu.json" --json "$out/library.json" "${timed[@]}" "${wheels[@]}"
  script attention_library "${ATTENTION_SECONDS:-100}" attention_library.py --like "$out/gpu.json" \
    --json "$out/attention_library.json" "${timed[@]}" "${wheels[@]}"
  [ -z "$emulated" ] || return 0  # the others' models do not fit a small machine
  local name
  for name in transformers_steps transformers_policies transformers_prompts transformers_serving; do
    script "$name" "${SYSTEM_SECONDS:-60}" "$name.py" "$out/$name.json" "${timed[@]}"
  done
  script host_tables "${TABLE_SECONDS:-85}" host_tables.py "$cpu" "$out/host_tables.json" "${timed[@]}"
}
# Measures the cases that sparse attention of engines needs beyond the default axes.
attention() {
  local mine=${ENGINE_SECONDS:-120}
  measure attention "$kernels" "$mine" --bench ragged_attention &&
    measure attention "$kernels" "$mine" --bench topk --axis n=32768 --axis k=2048 --axis rows=1,8,64 &&
    measure attention "$kernels" "$mine" --bench hbm_gather --axis row_bytes=656,1152 --axis gathered=16384,32768,131072 --axis run=1 &&
    measure attention "$kernels" "$mine" --bench zero_copy_gather --axis piece=656,1152 --axis bytes=1343488,2359296,16777216,134217728
}
status=0
measure gpu "$kernels" $((${KERNEL_SECONDS:-660} / 2)) "${kernel_options[@]}" || status=$?
[ $status -eq 3 ] || { measure pipeline "$pipeline" "${PIPELINE_SECONDS:-360}" "${pipeline_options[@]}" || status=$?; }
[ $status -eq 3 ] || { measure gpu "$kernels" "${KERNEL_SECONDS:-660}" "${kernel_options[@]}" || status=$?; }
[ $status -eq 3 ] || [ -n "$emulated" ] || { attention || status=$?; }
[ $status -eq 3 ] || scripts
[ $status -eq 3 ] || sanitize || status=$?
# A sample of the CPU's cases is enough, because the host of a GPU has many cores and time on a GPU is scarce.
[ $status -eq 3 ] || { measure cpu "$cpu" "${CPU_SECONDS:-120}" "${cpu_options[@]}" || status=$?; }
# Reasons name the case in brackets, which are removed so that a reason shared by many cases becomes one line.
for name in gpu pipeline attention cpu; do
  [ ! -f "$out/$name.json" ] || grep -oE '"bench":"[^"]*"|"skip_reason":"([^"\\]|\\.)*"' "$out/$name.json"
done | awk -F'":"' '/^"bench/ {bench = $2} /^"skip/ {gsub(/\[[^]]*\] */, "", $2); print bench $2}' | tr '"' ' ' | sort | uniq -c | sort -rn > "$out/skipped.txt" || true
[ $status -ne 3 ] || { echo "call this script again"; exit 3; }
[ $status -eq 0 ] && [ -z "${wrong:-}" ] || exit 1
echo "finished; then run: kvcast calibrate cpu --from $out/cpu.json -o HOST.yaml"
also=""
[ ! -s "$out/library.json" ] || also=" --from $out/library.json"
echo "                    kvcast calibrate cuda --from $out/gpu.json$also --host HOST.yaml --profile NEAREST -o PROFILE.yaml"
echo "                    kvcast validate policy_kernels --from $out/gpu.json --profile PROFILE.yaml"
echo "                    kvcast validate gpu_pipeline --from $out/pipeline.json --profile PROFILE.yaml"
