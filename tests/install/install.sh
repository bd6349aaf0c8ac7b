#!/usr/bin/env bash
# Installs the build into a folder, moves that, and runs the program from a directory that has no configurations.
#   tests/install/install.sh CMAKE BUILD_FOLDER
set -euo pipefail
cmake=$1 build=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$cmake" --install "$build" --prefix "$work/first" > "$work/said"
mv "$work/first" "$work/moved"
mkdir "$work/empty"
cd "$work/empty"
unset KVCAST_DATA
kvcast=$work/moved/bin/kvcast
"$kvcast" models llama-3.1-8b > "$work/said"
grep -q '8.03 billion parameters' "$work/said"
"$kvcast" run "$work/moved/share/kvcast/configs/runs/quickstart.yaml" --set workload.prompt_tokens=2048 \
  --set workload.decode_tokens=16 --set score=none > "$work/said"
grep -q 'Decode throughput' "$work/said"
# No file of the installed tree names the folder that it was built or installed in.
if grep -rlF -e "$work/first" -e "$build" "$work/moved"; then
  echo "these files name the folder in which they were built or installed" && exit 1
fi
# A program without its data says what it lacks.
cp "$kvcast" "$work/kvcast"
if "$work/kvcast" models 2> "$work/said"; then echo "a program without data lists no models and does not fail" && exit 1; fi
grep -q 'set KVCAST_DATA' "$work/said"
# A link of an installed page leads to a file.
find "$work/moved/share/doc/kvcast" -name '*.md' | while read -r page; do
  grep -oP '\]\(\K[^)#: ]+(?=[)#])' "$page" | while read -r link; do
    [ -e "$(dirname "$page")/$link" ] || echo "$page links to $link, which is not installed"
  done || true
done > "$work/said"
if [ -s "$work/said" ]; then
  cat "$work/said" && exit 1
fi
# A program that is optional may not have been built.
sed "s#$build/kvcast-mpi#$work/not-built#" "$build/cmake_install.cmake" > "$work/partial.cmake"
"$cmake" -DCMAKE_INSTALL_PREFIX="$work/partial" -P "$work/partial.cmake" > "$work/said"
[ -d "$work/partial/share/kvcast/configs" ]
# Another data folder can be given.
mkdir -p "$work/mine/configs/models"
sed 's/^title: .*/title: Mine/' "$work/moved/share/kvcast/configs/models/llama-3.1-8b.yaml" > "$work/mine/configs/models/mine.yaml"
KVCAST_DATA=$work/mine "$kvcast" models mine > "$work/said"
grep -q 'mine: Mine' "$work/said"
echo "the installed tree works"
