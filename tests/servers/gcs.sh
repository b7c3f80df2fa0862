#!/usr/bin/env bash
# A stand-in for Google Cloud Storage (gcs_server.py, in this folder), in memory, on 127.0.0.1.
#
#   gcs.sh install   nothing to do
#   gcs.sh start     starts it with the tests' buckets, waits until it answers; prints export lines
#   gcs.sh env       prints the export lines again
#   gcs.sh stop      ends it
#
# KRABKA_TEST_GCS_PORT  its port (4443)
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

PORT=${KRABKA_TEST_GCS_PORT:-4443}

# "disable_oauth" keeps a client from asking anyone for a token.
say_env() {
  cat <<END
export KRABKA_TEST_GCS_ENDPOINT=http://127.0.0.1:$PORT
export KRABKA_TEST_GCS_SERVICE_ACCOUNT_KEY='{"gcs_base_url":"http://127.0.0.1:$PORT","disable_oauth":true,"client_email":"","private_key":"","private_key_id":""}'
END
}

do_install() { :; }

answers() { curl -s -o /dev/null --max-time 2 "http://127.0.0.1:$PORT/"; }

do_start() {
  claim "$PORT"
  launch "$D" gcs.log python3 "$HERE/gcs_server.py" --port "$PORT" krabka-plain krabka-versioned:versioned \
    krabka-locked:locked=86400 krabka-retained:retained=86400
  wait_ready 20 answers
}

run_command "$@"
