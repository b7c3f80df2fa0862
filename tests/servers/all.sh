#!/usr/bin/env bash
# Every server that the tests use, at once.
#
#   all.sh start   installs and starts them side by side; prints export lines, or fails with none of them running
#   all.sh env     prints the export lines again
#   all.sh stop    ends them and removes their data
#
# For `cargo test` by hand:  env=$(tests/servers/all.sh start) && eval "$env"
set -euo pipefail

cd "$(dirname "$0")"
SERVERS=(seaweedfs rgw azurite gcs)

# each COMMAND SERVER...: side by side. What they print comes in their order. $DONE is then the servers that it went well for.
each() {
  local command=$1 out server i=0 jobs=()
  shift
  DONE=()
  out=$(mktemp -d)
  for server in "$@"; do
    "./$server.sh" "$command" >"$out/$server" &
    jobs+=($!)
  done
  for server in "$@"; do
    if wait "${jobs[i]}"; then DONE+=("$server"); fi
    i=$((i + 1))
  done
  for server in "$@"; do cat "$out/$server"; done
  rm -rf "$out"
  [ ${#DONE[@]} = $# ]
}

# With it, a test that finds no server fails; without it, it says so and passes.
say_rest() { echo "export KRABKA_TEST_SERVERS=1"; }

case ${1:-} in
  start)
    if ! each start "${SERVERS[@]}"; then
      # Only those that this call has started: one that failed may be running for somebody else.
      each stop ${DONE[@]+"${DONE[@]}"}
      exit 1
    fi
    say_rest
    ;;
  env)
    each env "${SERVERS[@]}"
    say_rest
    ;;
  stop) each stop "${SERVERS[@]}" ;;
  *)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
    [ "${1:-}" = --help ] || exit 2
    ;;
esac
