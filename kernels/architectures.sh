# GPU architectures for which an nvcc can compile; sourced by measure.sh and check_code.sh.

# Prints those architectures of a list such as "80;90a" that this nvcc knows, one per line, and reports the others. An
# nvcc that cannot list its architectures (before CUDA 11.5) is assumed to know all.
known_architectures() { # nvcc, list
  local known arch
  known=$("$1" --list-gpu-arch 2> /dev/null | sed -n 's/^compute_//p') || true
  for arch in ${2//;/ }; do
    if [ -z "$known" ] || grep -qx "${arch%a}" <<< "$known"; then
      echo "$arch"
    else
      echo "$1 does not know sm_$arch" >&2
    fi
  done
}

# Prints the compiler options for the list, one per line. Architectures that are newer than the compiler are replaced by
# PTX of the newest one below them, which the driver compiles when a program starts.
architecture_flags() { # nvcc, list
  local arch unknown first below=""
  known_architectures "$1" "$2" 2> /dev/null | sed 's/.*/-gencode=arch=compute_&,code=sm_&/'
  unknown=$(comm -13 <(known_architectures "$1" "$2" 2> /dev/null | sort) <(tr ';' '\n' <<< "$2" | grep . | sort))
  [ -n "$unknown" ] || return 0
  first=$(sed 's/a$//' <<< "$unknown" | sort -n | head -1)
  for arch in $("$1" --list-gpu-arch | sed -n 's/^compute_//p' | sort -n); do
    [ "$arch" -ge "$first" ] || below=$arch
  done
  echo "$1 does not know ${unknown//$'\n'/, }: PTX of compute_$below instead" >&2
  echo "-gencode=arch=compute_$below,code=compute_$below"
}
