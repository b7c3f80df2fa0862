#!/usr/bin/env bash
# Ceph's RADOS Gateway, an S3 server with versioning and Object Lock: one monitor, one OSD in memory and one gateway on
# 127.0.0.1. Release 16.2, which Debian 12 has, ignores `If-None-Match: *` where versioning is on: the store that write-once
# mode must find out about and refuse.
#
#   rgw.sh install   Debian packages (as root, or through sudo)
#   rgw.sh start     installs, starts, waits until it answers, makes the tests' buckets; prints export lines
#   rgw.sh env       prints the export lines again
#   rgw.sh stop      ends its processes and removes its data
#
# KRABKA_TEST_RGW_PORT          the S3 port (7480)
# KRABKA_TEST_RGW_MONITOR_PORT  the monitor's port (13300)
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

PORT=${KRABKA_TEST_RGW_PORT:-7480}
MONITOR=${KRABKA_TEST_RGW_MONITOR_PORT:-13300}
KEY=rgw-test-key
SECRET=rgw-test-secret
CONF=$D/ceph.conf

say_env() {
  cat <<END
export KRABKA_TEST_RGW_ENDPOINT=http://127.0.0.1:$PORT
export KRABKA_TEST_RGW_ACCESS_KEY_ID=$KEY
export KRABKA_TEST_RGW_SECRET_ACCESS_KEY=$SECRET
export KRABKA_TEST_RGW_REGION=us-east-1
END
}

installed() { command -v radosgw && command -v ceph-osd && command -v ceph-mon && command -v ceph; }

do_install() {
  if installed >/dev/null; then return; fi
  mkdir -p "$CACHE"
  {
    as_root apt-get update -qq &&
      as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        -o DPkg::Lock::Timeout=300 ceph-mon ceph-osd radosgw
  } >"$CACHE/rgw.log" 2>&1 || {
    tail -n 20 "$CACHE/rgw.log" >&2
    die "cannot install: see $CACHE/rgw.log"
  }
}

write_conf() {
  cat >"$CONF" <<END
[global]
fsid = $1
mon host = [v2:127.0.0.1:$MONITOR]
mon initial members = a
public network = 127.0.0.0/8
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
run dir = $D
admin socket = $D/\$name.asok
log file = $D/\$name.log
pid file =
keyring = $D/keyring
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon max pg per osd = 1000
mon allow pool size one = true
mon data avail crit = 1
mon warn on pool no redundancy = false
mon data = $D/mon
[osd]
osd data = $D/osd
osd objectstore = memstore
memstore device bytes = 4294967296
osd class load list = *
osd class default list = *
[client]
rgw frontends = beast endpoint=127.0.0.1:$PORT
rgw data = $D/rgw
rgw num rados handles = 1
rgw thread pool size = 32
rgw enable gc threads = true
rgw enable lc threads = false
rgw enable usage log = false
rgw run sync thread = false
ms mon client mode = crc
END
}

ceph_command() { ceph -c "$CONF" --connect-timeout 5 "$@"; }
osd_is_up() { ceph_command osd stat | grep -q ' 1 up'; }
answers() { curl -s -o /dev/null --max-time 2 "http://127.0.0.1:$PORT/"; }

do_start() {
  claim "$PORT" "$MONITOR"
  mkdir "$D/mon" "$D/osd" "$D/rgw"
  local fsid osd
  fsid=$(cat /proc/sys/kernel/random/uuid)
  osd=$(cat /proc/sys/kernel/random/uuid)
  write_conf "$fsid"
  {
    ceph-authtool --create-keyring "$D/keyring" --gen-key -n mon. --cap mon 'allow *'
    ceph-authtool "$D/keyring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *'
    monmaptool --create --fsid "$fsid" --addv a "[v2:127.0.0.1:$MONITOR]" "$D/monmap"
    ceph-mon -c "$CONF" --mkfs -i a --monmap "$D/monmap" --keyring "$D/keyring"
  } >"$D/setup.log" 2>&1
  launch "$D" mon.out.log ceph-mon -c "$CONF" -i a -f
  wait_ready 60 ceph_command -s
  {
    ceph_command osd new "$osd"
    ceph-osd -c "$CONF" -i 0 --mkfs --osd-uuid "$osd"
  } >>"$D/setup.log" 2>&1
  launch "$D" osd.out.log ceph-osd -c "$CONF" -i 0 -f
  wait_ready 60 osd_is_up
  launch "$D" rgw.out.log radosgw -c "$CONF" -n client.admin -f
  radosgw-admin -c "$CONF" user create --uid=test --display-name=test --access-key="$KEY" --secret-key="$SECRET" \
    >>"$D/setup.log" 2>&1
  wait_ready 90 answers
  make_s3_buckets
}

run_command "$@"
