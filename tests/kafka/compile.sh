#!/usr/bin/env bash
# Compiles the Java programs of programs/ against Apache Kafka, and prints the class path to run them with.
# Needs Java 17 and Maven.
#
#   java -cp "$(tests/kafka/compile.sh)" krabka.test.PROGRAM ARGUMENTS...
#
# The classes stay in the cache, in a folder for each state of the sources, so that later calls only print.
set -euo pipefail
# shellcheck source=../servers/lib.sh
. "$(dirname "$0")/../servers/lib.sh"

SOURCES=$(cd "$(dirname "$0")/programs" && pwd)
jars=$("$SOURCES/../../servers/kafka.sh" classpath)

compile() {
  find "$SOURCES" -name '*.java' -print0 | xargs -0 javac -nowarn -proc:none -Xlint:-options -d "$NEW" -cp "$jars"
  # Found before any settings that Kafka's own test classes bring along.
  cp "$SOURCES/log4j2-test.properties" "$NEW"
}

digest=$(cd "$SOURCES" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16)
install_once "$CACHE/kafka-programs-$digest" compile
echo "$CACHE/kafka-programs-$digest:$jars"
