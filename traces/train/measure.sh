#!/usr/bin/env bash
# Trains the small model on a GPU, measures its true accuracy under every policy and budget, captures traces, and compares the
# accuracy with kvcast's proxies. A call takes less than MINUTES; run the same command again until it prints "finished".
#   traces/train/measure.sh [OUT]      OUT: default out/train
# Needs PyTorch 2 and a GPU. If kvcast is built (KVCAST, default build/kvcast), the script also writes a head profile, so that
# headkv, compresskv, duo_attention and razor_attention are measured, and proxies. Otherwise, copy OUT to a machine that has kvcast
# and run the command there with TRAIN=no; then run it here again for the policies that need the profile.
#   MINUTES=8         time limit of this call
#   TOTAL_MINUTES=20  training time of all calls together
#   SIZE=small DEVICE=cuda CONTEXTS=512,1024,2048 ITEMS=64 TRACES=2 TASKS=…   (SIZE=toy DEVICE=cpu CONTEXTS=128 runs anywhere)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
OUT=${1:-$here/../../out/train}
KVCAST=${KVCAST:-$here/../../build/kvcast}
MINUTES=${MINUTES:-8} TOTAL_MINUTES=${TOTAL_MINUTES:-20} SIZE=${SIZE:-small} DEVICE=${DEVICE:-cuda}
CONTEXTS=${CONTEXTS:-512,1024,2048} ITEMS=${ITEMS:-64} TRACES=${TRACES:-2} TRAIN=${TRAIN:-yes} PYTHON=${PYTHON:-python3}
TASKS=${TASKS:-single,multikey,latest,multiquery,tracking,copying}
export PYTHONPATH=$here/../capture:$here PYTHONDONTWRITEBYTECODE=1
mkdir -p "$OUT"
end=$(($(date +%s) + $(awk "BEGIN {print int(60 * $MINUTES)}")))
left() { awk "BEGIN {m = ($end - $(date +%s)) / 60; print (m > 0 ? m : 0)}"; }
go_on() { echo "$*: run the same command again to continue"; exit 0; }
spent() { awk "BEGIN {exit !($end - $(date +%s) < 60 * $1)}"; }  # succeeds if fewer than $1 minutes are left

if [ "$TRAIN" = yes ]; then
  answer=$("$PYTHON" -m kvcast_train.train "$OUT" --size "$SIZE" --device "$DEVICE" --minutes "$(left)" --total-minutes "$TOTAL_MINUTES")
  echo "$answer"
  case "$answer" in *finished) ;; *) exit 0 ;; esac
  if [ ! -d "$OUT/small" ] && [ "$MINUTES" -gt 2 ] && spent 2; then go_on "trained"; fi
  # A trace of 2048 tokens with all queries of 8 layers has 25 MB; an interrupted capture resumes. The small traces are kept.
  capture() { "$PYTHON" -m kvcast_train.capture "$OUT" "$@" --device "$DEVICE" --tasks "$TASKS" --items "$ITEMS" --traces "$TRACES"; }
  capture "$OUT/traces" --contexts "$CONTEXTS"
  capture "$OUT/small" --contexts "${CONTEXTS%%,*}" --layers every:4 --window 128
fi
profile=()
if "$KVCAST" policies full >/dev/null 2>&1; then has_kvcast=yes; else has_kvcast=no; fi
if [ $has_kvcast = yes ] && [ ! -f "$OUT/profile.yaml" ]; then
  traces=()
  for trace in "$OUT"/traces/*-"${CONTEXTS%%,*}"-*.safetensors; do traces+=(--trace "$trace"); done
  "$KVCAST" profile "${traces[@]}" -o "$OUT/profile.yaml"
fi
[ ! -f "$OUT/profile.yaml" ] || profile=(--profile "$OUT/profile.yaml")
if [ "$TRAIN" = yes ]; then
  answer=$("$PYTHON" -m kvcast_train.evaluate "$OUT" --device "$DEVICE" --contexts "$CONTEXTS" --tasks "$TASKS" --items "$ITEMS" \
    --minutes "$(left)" "${profile[@]}")
  echo "$answer"
  case "$answer" in *finished) ;; *) exit 0 ;; esac
fi
[ $has_kvcast = yes ] || go_on "$KVCAST does not run; table.csv is complete except for policies that need a profile"
"$PYTHON" -m kvcast_train.proxies "$OUT/table.csv" "$OUT/traces" "$OUT/proxies.csv" --kvcast "$KVCAST" "${profile[@]}"
"$PYTHON" -m kvcast_train.compare "$OUT/table.csv" "$OUT/proxies.csv" | tee "$OUT/comparison.json"
echo "finished"
