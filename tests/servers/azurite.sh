#!/usr/bin/env bash
# Azurite, Microsoft's emulator of Azure Blob Storage, in memory, on 127.0.0.1.
#
#   azurite.sh install   the npm package
#   azurite.sh start     installs, starts, waits until it answers, makes the tests' container; prints export lines
#   azurite.sh env       prints the export lines again
#   azurite.sh stop      ends it
#
# KRABKA_TEST_AZURITE_PORT  its port (10000)
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

VERSION=3.37.0
PROGRAM=$CACHE/azurite-$VERSION
PORT=${KRABKA_TEST_AZURITE_PORT:-10000}
# The emulator's account and key are fixed, and public.
ACCOUNT=devstoreaccount1
KEY=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==

# AZURITE_BLOB_STORAGE_URL is where object_store's emulator mode looks for it.
say_env() {
  cat <<END
export KRABKA_TEST_AZURITE_ENDPOINT=http://127.0.0.1:$PORT/$ACCOUNT
export KRABKA_TEST_AZURITE_ACCOUNT=$ACCOUNT
export KRABKA_TEST_AZURITE_ACCESS_KEY=$KEY
export AZURITE_BLOB_STORAGE_URL=http://127.0.0.1:$PORT
END
}

npm_program() { npm install --prefix "$NEW" --no-audit --no-fund --no-save --loglevel=error "azurite@$VERSION"; }

do_install() { install_once "$PROGRAM" npm_program; }

answers() { curl -s -o /dev/null --max-time 2 "http://127.0.0.1:$PORT/"; }

do_start() {
  claim "$PORT"
  launch "$D" azurite.log "$PROGRAM/node_modules/.bin/azurite-blob" --blobHost 127.0.0.1 --blobPort "$PORT" \
    --inMemoryPersistence --disableTelemetry --silent
  wait_ready 60 answers
  python3 "$HERE/azure_container.py" "http://127.0.0.1:$PORT" "$ACCOUNT" "$KEY" krabka-plain
}

run_command "$@"
