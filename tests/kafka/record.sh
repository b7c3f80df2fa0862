#!/usr/bin/env bash
# Runs Kafka's own tests of its metadata manager and of tiered storage, and writes down what the manager read and answered.
# Needs Java 17 and Maven, and ten to twenty minutes for all.
#
#   record.sh install              the jars and the agent
#   record.sh list                 the classes that are recorded
#   record.sh record DIR [CLASS]   runs all of them, or those named, and writes DIR/CLASS.ndjson: README.md has the format
#
# ReassignReplicaExpandTest is left out: long, and nothing in it that ReassignReplicaMoveTest has not.
# One class at a time: each has brokers of its own, on free ports of 127.0.0.1, in one Java process.
set -euo pipefail
# shellcheck source=../servers/lib.sh
. "$(dirname "$0")/../servers/lib.sh"

VERSION=4.3.1
TESTS=$CACHE/kafka-tests-$VERSION
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

MANAGER=org.apache.kafka.server.log.remote.metadata.storage
CLASSES="
  org.apache.kafka.server.log.remote.storage.RemoteLogMetadataManagerTest
  $MANAGER.RemoteLogSegmentLifecycleTest
  $MANAGER.TopicBasedRemoteLogMetadataManagerTest
  $MANAGER.TopicBasedRemoteLogMetadataManagerRestartTest
  $MANAGER.TopicBasedRemoteLogMetadataManagerMultipleSubscriptionsTest
"
for name in AlterLogDir DeleteSegmentsByRetentionSize DeleteSegmentsByRetentionTime DeleteSegmentsDueToLogStartOffsetBreach DeleteTopic \
  DisableRemoteLogOnTopic EnableRemoteLogOnTopic FetchFromLeaderWithCorruptedCheckpoint ListOffsets OffloadAndConsumeFromLeader \
  OffloadAndTxnConsumeFromLeader PartitionsExpand ReassignReplicaMove ReassignReplicaShrink RollAndOffloadActiveSegment; do
  CLASSES+=" org.apache.kafka.tiered.storage.integration.${name}Test"
done

dependency() { # ARTIFACT [VERSION [CLASSIFIER]]
  echo "<dependency><groupId>${1%:*}</groupId><artifactId>${1#*:}</artifactId>"
  echo "${2:+<version>$2</version>}${3:+<classifier>$3</classifier>}</dependency>"
}

maven_jars() {
  local name
  {
    echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    echo '<groupId>krabka.test</groupId><artifactId>kafka-tests</artifactId><version>1</version><packaging>pom</packaging>'
    echo '<dependencyManagement><dependencies><dependency><groupId>org.junit</groupId><artifactId>junit-bom</artifactId>'
    echo '<version>5.13.1</version><type>pom</type><scope>import</scope></dependency></dependencies></dependencyManagement>'
    echo '<dependencies>'
    for name in storage storage-api clients server-common; do dependency "org.apache.kafka:kafka-$name" $VERSION test; done
    dependency org.apache.kafka:kafka_2.13 $VERSION test
    dependency org.apache.kafka:kafka_2.13 $VERSION
    for name in tools test-common-internal-api test-common-runtime; do dependency "org.apache.kafka:kafka-$name" $VERSION; done
    dependency org.junit.jupiter:junit-jupiter
    dependency org.junit.platform:junit-platform-console
    dependency org.mockito:mockito-junit-jupiter 5.20.0
    dependency org.hamcrest:hamcrest 3.0
    dependency org.apache.logging.log4j:log4j-slf4j-impl 2.25.4
    echo '</dependencies></project>'
  } >"$NEW/pom.xml"
  mvn -q -B -f "$NEW/pom.xml" dependency:copy-dependencies -DoutputDirectory="$NEW/jars"
}

# Byte Buddy comes with Mockito.
agent_jar() {
  mkdir "$NEW/classes"
  javac -nowarn -proc:none -d "$NEW/classes" -cp "$TESTS/jars/*" -sourcepath "$HERE/programs" "$HERE"/agent/krabka/test/*.java
  mkdir -p "$NEW/classes/META-INF/services"
  echo krabka.test.TestNames >"$NEW/classes/META-INF/services/org.junit.platform.launcher.TestExecutionListener"
  cp "$HERE/programs/log4j2-test.properties" "$NEW/classes"
  echo 'Premain-Class: krabka.test.RecordMetadata' >"$NEW/manifest"
  jar cfm "$NEW/agent.jar" "$NEW/manifest" -C "$NEW/classes" .
}

do_install() {
  install_once "$TESTS" maven_jars
  local digest
  digest=$(cd "$HERE" && sha256sum agent/krabka/test/*.java programs/krabka/test/MetadataJson.java programs/log4j2-test.properties |
    sha256sum | cut -c1-16)
  AGENT=$CACHE/kafka-recorder-$digest
  install_once "$AGENT" agent_jar
}

record_class() { # CLASS DIR
  local name=${1##*.} work select=(--select-class "$1")
  # These run twice, with either group protocol, which is nothing to the metadata: the first time is enough.
  case $1 in *.integration.*) select=(--select-iteration "method:$1#executeTieredStorageTest(java.lang.String)[0]") ;; esac
  work=$(mktemp -d)
  if ! (
    cd "$work" # some tests write where they stand
    exec nice -n 5 java -Xmx1g -XX:+UseSerialGC "-Djava.io.tmpdir=$work" "-javaagent:$AGENT/agent.jar=$work/trace.ndjson" \
      -cp "$AGENT/agent.jar:$TESTS/jars/*" org.junit.platform.console.ConsoleLauncher execute \
      --disable-banner --disable-ansi-colors --details=tree --include-classname='.*' \
      --config junit.jupiter.extensions.autodetection.enabled=true "${select[@]}" >"$work/out" 2>"$work/err"
  ); then
    tail -n 30 "$work/out" >&2
    tail -n 30 "$work/err" >&2
    rm -rf "$work"
    die "$name did not pass"
  fi
  if ! grep -q '"ask"' "$work/trace.ndjson"; then die "nobody asked anything in $name: see $work"; fi
  if grep '"not_recorded"' "$work/trace.ndjson" >&2; then die "the recorder took the store's answer for the manager's in $name: see $work"; fi
  mv "$work/trace.ndjson" "$2/$name.ndjson"
  rm -rf "$work"
  echo "$name: $(grep -c '"ask"' "$2/$name.ndjson") answers, $(stat -c %s "$2/$name.ndjson") bytes"
}

do_record() { # DIR [CLASS...]
  local dir=${1:?the folder for the traces} class name wanted=
  shift
  mkdir -p "$dir"
  dir=$(cd "$dir" && pwd)
  for name in "$@"; do
    for class in $CLASSES; do
      if [ "${class##*.}" = "$name" ]; then wanted+=" $class"; fi
    done
    case " $wanted" in *".$name") ;; *) die "no class $name" ;; esac
  done
  do_install
  for class in ${wanted:-$CLASSES}; do record_class "$class" "$dir"; done
}

case ${1:-} in
  install) do_install ;;
  list) for class in $CLASSES; do echo "${class##*.}"; done ;;
  record)
    shift
    do_record "$@"
    ;;
  *)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
    [ "${1:-}" = --help ] || exit 2
    ;;
esac
