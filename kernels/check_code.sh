#!/usr/bin/env bash
# Checks the machine code of the kernels: no register spills and no local memory on any architecture, and 16-byte accesses
# and tensor cores in the kernels that are written for them.
#   kernels/check_code.sh [BUILD_FOLDER [NAME]...]     NAME: a source file without extension ("convert"); default: all
#   KVCAST_CUDA_ARCHS="80;90a" restricts the architectures (all six, file by file, take a quarter of an hour); those that
#   this nvcc does not know are reported and left out
#   KVCAST_NVCC=FILE, KVCAST_CUOBJDUMP=FILE   instead of the programs on the PATH or in /usr/local
# Inspects the warnings of ptxas and the PTX and, if cuobjdump is available, the SASS of every kernel on every
# architecture. Exit codes: 0 right, 1 wrong, 77 nvcc is missing.
set -euo pipefail
source_folder=$(cd "$(dirname "$0")" && pwd)
. "$source_folder/architectures.sh"
build=${1:-$source_folder/../build-code}
nvcc=${KVCAST_NVCC:-$(command -v nvcc || ls -d /usr/local/cuda*/bin/nvcc 2> /dev/null | sort -V | tail -1)}
[ -n "$nvcc" ] || { echo "skipped: no nvcc"; exit 77; }
cuobjdump=${KVCAST_CUOBJDUMP:-$(command -v cuobjdump || ls "$(dirname "$nvcc")/cuobjdump" 2> /dev/null || true)}
archs=$(known_architectures "$nvcc" "${KVCAST_CUDA_ARCHS:-80;86;89;90a;100;120}")
[ -n "$archs" ] || { echo "$nvcc knows none of the architectures"; exit 1; }
mkdir -p "$build"
flags=(-std=c++20 -O3 -diag-suppress=177 -I"$source_folder" -Xptxas=--warn-on-spills,--warn-on-local-memory-usage,--warning-as-error)
for arch in $archs; do flags+=("-gencode=arch=compute_$arch,code=sm_$arch"); done
first=${archs%%[[:space:]]*}
wrong=0

# Rules for kernels that move rows of halves or floats in bulk, with neither 2-byte loads nor 4-byte stores unless listed.
# kernel: must contain (wide_load wide_store async mma): may contain (u16).
rules="
attention_kernel:async mma:
ragged_kernel:async mma:
hash_vectors:wide_load mma:
window_logits:wide_load mma:
prefill_kernel:async mma:
rebuild_keys:wide_load mma:
score_centroids:wide_load:
score_units:wide_load mma:
score_layer:wide_load:
score_dims:wide_load wide_store:u16
summarize_pages:wide_load wide_store:
compare_queries:wide_load:
gather_rows:wide_load wide_store:
move_runs:wide_load wide_store:
gather_pages:wide_load wide_store:
place_pages:wide_load wide_store:
nhd_to_hnd:wide_load wide_store:
hnd_to_nhd:wide_load wide_store:
add_norm:wide_load wide_store:
silu_multiply:wide_load wide_store:
pick_token:wide_load:
widen_bounds:wide_load wide_store:
stream_read:wide_load:
stream_write:wide_store:
stream_copy:wide_load wide_store:
packed_attention:async mma:
sum_anchors:wide_load:
score_keys:wide_load:
pass_through:wide_load wide_store:
"
# Prints one line for each kernel of a PTX file: its mangled name and its kinds of instructions.
contents() {
  awk '/\.entry / {name = $0; has = ""}
    /ld\.global[a-z.]*\.v4\.(u32|b32|f32)|ld\.global[a-z.]*\.v2\.(u64|b64)/ {has = has " wide_load"}
    /st\.global[a-z.]*\.v4\./ {has = has " wide_store"}
    /cp\.async\.cg\.shared\.global/ {has = has " async"}
    /mma\.sync/ {has = has " mma"}
    /ld\.global[a-z.]*\.[ub]16/ {has = has " u16"}
    /(ld|st)\.local/ {has = has " local"}
    /^}/ && name != "" {print name, has, "PTX"; name = ""}' "$1"
}
# Prints the same for SASS: one line for each kernel and architecture.
sass_contents() {
  awk 'function flush() {if (name != "") print name, has, arch; name = ""}
    /code for sm_/ {flush(); arch = $3}
    /Function : / {flush(); name = $3; has = ""}
    / LDG\.E(\.[A-Z]+)*\.128/ {has = has " wide_load"}
    / STG\.E(\.[A-Z]+)*\.128/ {has = has " wide_store"}
    / LDGSTS(\.[A-Z]+)*\.128/ {has = has " async"}
    / [HOQ]*MMA/ {has = has " mma"}
    / LDG\.E(\.[A-Z]+)*\.U16/ {has = has " u16"}
    / (LDL|STL)[. ]/ {has = has " local"}
    END {flush()}' "$1"
}
# Applies the rules. $1: the lines of contents() or sass_contents(), $2: the name of their source file.
check_rules() {
  local kernel must may line word
  while IFS=: read -r kernel must may; do
    [ -n "$kernel" ] || continue
    while read -r line; do
      for word in $must; do
        case " $line " in *" $word "*) ;; *) echo "$2: $kernel has no $word: ${line##* }"; wrong=1 ;; esac
      done
      case "$may: $line " in u16:*) ;; *" u16 "*) echo "$2: $kernel loads halves one by one: ${line##* }"; wrong=1 ;; esac
      seen="$seen $kernel"
    done < <(grep -E "[0-9]$kernel[A-Z]" <<< "$1" || true)
  done <<< "$rules"
  while read -r line; do
    case " $line " in *" local "*) echo "$2: ${line%% *} uses local memory: ${line##* }"; wrong=1 ;; esac
  done <<< "$1"
}

seen=""
for file in "$source_folder"/cuda/*.cu "$source_folder"/pipeline/*.cu "$source_folder"/device/measure.cu; do
  name=$(basename "$file" .cu)
  if [ $# -gt 1 ]; then
    case " ${*:2} " in *" $name "*) ;; *) continue ;; esac
  fi
  grep -qE 'KVCAST_KERNEL|__global__|\.cuh"' "$file" || continue
  "$nvcc" "${flags[@]}" -x cu -c "$file" -o "$build/$name.o" > "$build/$name.log" 2>&1 || { cat "$build/$name.log"; wrong=1; }
  "$nvcc" -std=c++20 -O3 -diag-suppress=177 -I"$source_folder" -arch="compute_$first" -x cu -ptx "$file" -o "$build/$name.ptx"
  check_rules "$(contents "$build/$name.ptx")" "$name"
  [ -n "$cuobjdump" ] || continue
  "$cuobjdump" -sass "$build/$name.o" > "$build/$name.sass"
  code=$(sass_contents "$build/$name.sass")
  check_rules "$code" "$name"
  kernels=$(grep -c '\.entry ' "$build/$name.ptx" || true)
  for arch in $archs; do
    [ "$(grep -c " sm_$arch$" <<< "$code" || true)" -ge "$kernels" ] || { echo "$name: kernels without SASS for sm_$arch"; wrong=1; }
  done
done
[ $# -gt 1 ] || for kernel in $(cut -d: -f1 <<< "$rules"); do
  case " $seen " in *" $kernel "*) ;; *) echo "$kernel: no such kernel was found"; wrong=1 ;; esac
done
[ $wrong -eq 0 ] || exit 1
looked="cuobjdump is missing: SASS was not inspected"
[ -z "$cuobjdump" ] || looked="PTX and SASS"
echo "code of $(echo "$seen" | tr ' ' '\n' | sort -u | grep -c .) kernels for $(echo $archs | sed 's/ /, /g') conforms ($("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/nvcc \1/p'); $looked)"
