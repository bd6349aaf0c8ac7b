#!/usr/bin/env bash
# Does kernels/measure.sh do its work on a machine that it has never seen? Without a GPU: on the emulator, call after call;
# and with stand-ins for nvcc and the driver, which record how they are called.
#   tests/kernels/measure_script.sh SOURCE_FOLDER PROGRAMS BUILD_FOLDER
set -euo pipefail
source=$1 programs=$2 build=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expect() { grep -q -- "$1" "$2" || { echo "no '$1' in $2:"; cat "$2"; exit 1; }; }

# On the emulator. The CPU's program stands where the build put it.
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
# One archive has all of it.
tar -tzf "$work/out/bring-home.tar.gz" > "$work/packed"
for name in gpu.json pipeline.json cpu.csv skipped.txt; do expect "^./emulated/$name$" "$work/packed"; done
# A second call finds every row there and measures none again.
rows() { grep -h '"bench"' "$work"/out/emulated/*.json | sha256sum; }
before=$(rows)
bash "$source/kernels/measure.sh" "$work/out" > "$work/said"
expect '^finished' "$work/said"
[ "$before" = "$(rows)" ] || { echo "the second call changed rows"; exit 1; }
# A call without time ends, and says that it is not done.
status=0
bash "$source/kernels/measure.sh" "$work/out2" 0 > "$work/said" || status=$?
[ $status -eq 3 ]
expect 'call it again' "$work/said"
unset KVCAST_EMULATED

# A bare machine: nvcc and a driver, no CMake. The stand-in writes programs that say how they were called; what is to
# measure breaks the device once, where the test asks for it.
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
bare() { # name of the results and of the build
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
  expect "$tool of kernels: nothing" "$work/said"
done
expect "synccheck of pipeline: could not look (255)" "$work/said"
# Half of the kernels' time, the pipelines, the other half, then the libraries.
expect "python .*kernels/library.py --like $work/bare/GPU-01ab/gpu.json --json $work/bare/GPU-01ab/library.json --seconds 90" "$RECORD"
expect 'libraries: 12 rows of libraries' "$work/said"
grep -oE '^(gpu|pipeline|libraries|cpu):' "$work/said" | tr -d '\n' > "$work/order"
expect '^gpu:pipeline:gpu:libraries:cpu:$' "$work/order"
# Every source of the three programs is compiled once, and nothing of the emulator is.
for file in "$source"/kernels/{harness,reference,device,cuda,cpu,pipeline}/*.{cpp,cu}; do
  count=$(grep -c -- "-c $file " "$RECORD" || true)
  case "$file" in
    */emulat* | */*_emulated.cpp | */lazy_queue.cpp | */\*.*) [ "$count" -eq 0 ] ;;
    *) [ "$count" -eq 1 ] ;;
  esac || { echo "$file is compiled $count times"; exit 1; }
done
# Another call builds nothing and looks for no race again.
lines=$(wc -l < "$RECORD")
bare bare 1
[ $status -eq 0 ] && [ "$lines" -eq "$(wc -l < "$RECORD")" ] || { echo "the second call began anew"; exit 1; }
# Another card begins in a folder of its own, and takes nothing from the first one's.
[ -f "$work/bare/GPU-01ab/.passed-kernels" ]
CARD=GPU-23cd
bare bare 1
[ $status -eq 0 ] && [ -f "$work/bare/GPU-23cd/.passed-kernels" ]
CARD=GPU-01ab
# A race is no way to finish.
RACES=racecheck
bare races 1
[ $status -eq 1 ]
expect 'racecheck of kernels: errors;' "$work/said"
expect 'synccheck of kernels: nothing' "$work/said"
RACES=none
# After a case that broke the device another process goes on, and the call tells.
touch "$BREAK"
bare broken 1
[ $status -eq 1 ] && [ "$(grep -c '^gpu: --json' "$work/said")" -eq 3 ] || { cat "$work/said"; exit 1; }
expect '^pipeline: --json' "$work/said"
# All GPUs of the machine are built for; one that is newer than nvcc by PTX, one that is too old not at all.
CAPABILITIES="9.0 12.0 9.0 7.5"
bare several 2
[ $status -eq 0 ]
expect 'compute_90a,code=sm_90a .*compute_90,code=compute_90 .*cuda/topk.cu' "$RECORD"
! grep -qE 'compute_(120|75)' "$RECORD"
CAPABILITIES=7.5
bare old 3
[ $status -eq 1 ]
expect 'compute capability 8.0' "$work/said"
# A machine without nvcc is told so.
status=0
PATH=/usr/bin:/bin KVCAST_CUDA_ARCHS=90a KVCAST_NVCC=none bash "$source/kernels/measure.sh" "$work/none" > "$work/said" 2>&1 || status=$?
[ $status -eq 1 ]
expect 'no nvcc' "$work/said"
echo "measure.sh does its work"
