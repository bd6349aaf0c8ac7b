#!/usr/bin/env bash
# Checks kernels/measure.sh on a new machine, without a GPU: on the emulator, with repeated calls, and with stand-ins for
# nvcc and the driver that record their calls.
#   tests/kernels/measure_script.sh SOURCE_FOLDER PROGRAMS BUILD_FOLDER
set -euo pipefail
source=$1 programs=$2 build=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expect() { grep -q -- "$1" "$2" || { echo "no '$1' in $2:"; cat "$2"; exit 1; }; }

# The emulator runs first. The CPU's program is where the build put it.
mkdir "$work/programs"
ln -s "$programs"/kvcast-*-emulated "$build"/kvcast-kernels-cpu "$work/programs/"
export KVCAST_EMULATED=$work/programs
bash "$source/kernels/measure.sh" "$work/out" > "$work/said"
expect '^finished' "$work/said"
for name in gpu pipeline cpu; do [ -s "$work/out/emulated/$name.json" ] && [ -s "$work/out/emulated/$name.csv" ]; done
expect '"bench":"topk"' "$work/out/emulated/gpu.json"
expect '"attended":64' "$work/out/emulated/pipeline.json"
expect '"median":' "$work/out/emulated/cpu.json"
expect '1 topk the emulator has no sense of time' "$work/out/emulated/skipped.txt"
# One archive contains all results.
tar -tzf "$work/out/bring-home.tar.gz" > "$work/packed"
for name in gpu.json pipeline.json cpu.csv skipped.txt; do expect "^./emulated/$name$" "$work/packed"; done
# A second call finds every row and measures none again.
rows() { grep -h '"bench"' "$work"/out/emulated/*.json | sha256sum; }
before=$(rows)
bash "$source/kernels/measure.sh" "$work/out" > "$work/said"
expect '^finished' "$work/said"
[ "$before" = "$(rows)" ] || { echo "the second call changed rows"; exit 1; }
# A call without time ends and reports that it is not done.
status=0
bash "$source/kernels/measure.sh" "$work/out2" 0 > "$work/said" || status=$?
[ $status -eq 3 ]
expect 'call this script again' "$work/said"
unset KVCAST_EMULATED

# A bare machine has nvcc and a driver, but no CMake. The stand-in for nvcc writes programs that print their arguments; the
# measuring program breaks the device once if the test requests it.
mkdir "$work/bin"
cat > "$work/bin/nvcc" << 'END'
#!/usr/bin/env bash
echo "$*" >> "$RECORD"
[ "$1" != --list-gpu-arch ] || printf 'compute_%s\n' 80 86 89 90
while [ $# -gt 0 ]; do
  if [ "$1" = -o ]; then
    printf '#!/bin/bash\necho "$@"\n[ "$1" != --json ] || [ -s "$2" ] || echo {} > "$2"\ncase $1:$2 in --json:*/gpu.json) [ ! -f "$BREAK" ] || { rm "$BREAK"; exit 4; } ;; esac\n' > "$2"
    chmod +x "$2"
  fi
  shift
done
END
cat > "$work/bin/compute-sanitizer" << 'END'
#!/usr/bin/env bash
echo "sanitizer $*" >> "$RECORD"
case "$*" in *" $RACES "*) exit 9 ;; *" synccheck "*kvcast-pipeline*) exit 255 ;; esac
END
printf '#!/bin/bash\ncase "$*" in *uuid*) echo "$CARD" ;; *) printf "%%s\\n" $CAPABILITIES ;; esac\n' > "$work/bin/nvidia-smi"
printf '#!/bin/bash\nexit 1\n' > "$work/bin/cmake"
printf '#!/bin/bash\necho "python $*" >> "$RECORD"; echo "12 rows of libraries"\n' > "$work/bin/python3"
chmod +x "$work"/bin/*
export RECORD=$work/record BREAK=$work/break RACES=none CAPABILITIES=9.0 CARD=GPU-01ab
bare() { # names of the results and of the build
  status=0
  PATH=$work/bin:$PATH KVCAST_KERNELS_BUILD=$work/build-$2 bash "$source/kernels/measure.sh" "$work/$1" > "$work/said" 2>&1 || status=$?
}
bare bare 1
[ $status -eq 0 ]
expect '^finished' "$work/said"
expect 'gpu: --json .*--stop-after' "$work/said"
expect 'compute_90a,code=sm_90a.* -x cu -c .*cuda/topk.cu' "$RECORD"
expect ' -x c++ -c .*harness/run.cpp' "$RECORD"
expect 'pipeline_freekv.cu.o.* -o .*kvcast-pipeline' "$RECORD"
for tool in memcheck racecheck synccheck; do
  expect "sanitizer --tool $tool .*kvcast-kernels --refcheck" "$RECORD"
  expect "sanitizer --tool $tool .*kvcast-pipeline --refcheck" "$RECORD"
  expect "$tool of kernels: no errors" "$work/said"
done
expect "synccheck of pipeline: could not run (255)" "$work/said"
# The order is half of the kernels' time, the pipelines, the other half, then the libraries.
expect "python .*kernels/library.py --like $work/bare/GPU-01ab/gpu.json --json $work/bare/GPU-01ab/library.json --seconds 90" "$RECORD"
expect "python .*kernels/host_tables.py $work/build-1/kvcast-kernels-cpu $work/bare/GPU-01ab/host_tables.json --seconds 85" "$RECORD"
for name in steps policies prompts serving; do
  expect "python .*kernels/transformers_$name.py $work/bare/GPU-01ab/transformers_$name.json --seconds 60" "$RECORD"
done
expect "python .*attention_library.py --like $work/bare/GPU-01ab/gpu.json --json .*/attention_library.json --seconds 100" "$RECORD"
expect 'library: 12 rows of libraries' "$work/said"
grep -oE '^(gpu|pipeline|attention|library|host_tables|cpu):' "$work/said" | tr -d '\n' > "$work/order"
expect '^gpu:pipeline:gpu:attention:attention:attention:attention:library:host_tables:cpu:$' "$work/order"
# Cases that no default axis has: tokens of sparse latent attention, gathered from HBM and from pinned memory.
expect 'attention: --json .*attention.json .*zero_copy_gather --axis piece=656,1152' "$work/said"
expect 'attention: --json .*attention.json .*hbm_gather --axis row_bytes=656,1152' "$work/said"
# Every source of the three programs is compiled once, and no source of the emulator is compiled.
for file in "$source"/kernels/{harness,reference,device,cuda,cpu,pipeline}/*.{cpp,cu}; do
  count=$(grep -c -- "-c $file " "$RECORD" || true)
  case "$file" in
    */emulat* | */*_emulated.cpp | */lazy_queue.cpp | */\*.*) [ "$count" -eq 0 ] ;;
    *) [ "$count" -eq 1 ] ;;
  esac || { echo "$file is compiled $count times"; exit 1; }
done
# Another call builds nothing and does not look for races again.
lines=$(wc -l < "$RECORD")
bare bare 1
[ $status -eq 0 ] && [ "$lines" -eq "$(wc -l < "$RECORD")" ] || { echo "the second call started over"; exit 1; }
# Another GPU starts in its own folder and uses nothing from that of the first one.
[ -f "$work/bare/GPU-01ab/.passed-kernels" ]
CARD=GPU-23cd
bare bare 1
[ $status -eq 0 ] && [ -f "$work/bare/GPU-23cd/.passed-kernels" ]
CARD=GPU-01ab
# A race makes the call fail.
RACES=racecheck
bare races 1
[ $status -eq 1 ]
expect 'racecheck of kernels: errors;' "$work/said"
expect 'synccheck of kernels: no errors' "$work/said"
RACES=none
# After a case that broke the device another process continues, and the call fails.
touch "$BREAK"
bare broken 1
[ $status -eq 1 ] && [ "$(grep -c '^gpu: --json' "$work/said")" -eq 3 ] || { cat "$work/said"; exit 1; }
expect '^pipeline: --json' "$work/said"
# Programs are built for all GPUs of the machine: with PTX for a GPU that is newer than nvcc, and not for one that is too old.
CAPABILITIES="9.0 12.0 9.0 7.5"
bare several 2
[ $status -eq 0 ]
expect 'compute_90a,code=sm_90a .*compute_90,code=compute_90 .*cuda/topk.cu' "$RECORD"
! grep -qE 'compute_(120|75)' "$RECORD"
CAPABILITIES=7.5
bare old 3
[ $status -eq 1 ]
expect 'compute capability 8.0' "$work/said"
# On a machine without nvcc, the script reports that.
status=0
PATH=/usr/bin:/bin KVCAST_CUDA_ARCHS=90a KVCAST_NVCC=none bash "$source/kernels/measure.sh" "$work/none" > "$work/said" 2>&1 || status=$?
[ $status -eq 1 ]
expect 'no nvcc' "$work/said"
echo "measure.sh works"
