#!/usr/bin/env bash
# Makes a set of test data with a real Apache Kafka, in about a minute. Needs Java 17, Maven and python3.
#
#   make.sh SET DIR   SET is "main", or any other word: the seed of a set with other names, sizes and mixes
set -euo pipefail

if [ $# != 2 ]; then
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
kafka=$here/../../servers/kafka.sh
mkdir -p "$2"
out=$(cd "$2" && pwd)
if [ -n "$(ls -A "$out")" ]; then
  echo "make.sh: $2 is not empty" >&2
  exit 1
fi

lines=$("$kafka" start --brokers 2 --tiered --set transaction.max.timeout.ms=900000)
classes=$(mktemp -d)
# shellcheck disable=SC2064 # the folder's name is known now
trap "'$kafka' stop; rm -rf '$classes'" EXIT
eval "$lines"
export KRABKA_TEST_KAFKA_CLASSES=$classes
data=$KRABKA_TEST_KAFKA_DIR

javac -nowarn -d "$classes" -cp "$("$kafka" classpath)" "$here"/*.java
"$kafka" tool MakeTestData produce "$KRABKA_TEST_KAFKA_BOOTSTRAP_SERVERS" "$1" "$out"

# Broker 2 dies, so its active segments keep preallocated index files. Broker 1 stops cleanly.
"$kafka" kill 2
"$kafka" halt 1
mkdir "$out/partitions" "$out/killed" "$out/metadata-topic"
for dir in "$data"/node-[12]/data/*-[0-9]*; do
  case $dir in
    *-delete) ;;
    */__remote_log_metadata-*) cp -r "$dir" "$out/metadata-topic/" ;;
    */__*) ;;
    */node-1/*) cp -r "$dir" "$out/partitions/" ;;
    *-0) cp -r "$dir" "$out/killed/" ;;
  esac
done
cp -r "$data/remote" "$out/tier"
"$kafka" tool MakeTestData decode "$out"
# Nobody reads these two, and each is preallocated to 10 MiB.
rm "$out"/metadata-topic/*/*.index "$out"/metadata-topic/*/*.timeindex
