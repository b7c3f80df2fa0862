#!/usr/bin/env bash
# Apache Kafka (KRaft) on 127.0.0.1, from its Maven artifacts. Needs Java 17 and Maven.
#
#   kafka.sh install             the jars
#   kafka.sh start [OPTIONS]     installs, starts, waits until every broker answers; prints export lines
#       --brokers N              N brokers (1); node 1 is the controller too
#       --tiered                 tiered storage on, with LocalTieredStorage and TopicBasedRemoteLogMetadataManager
#       --set KEY=VALUE          one more line of server.properties, as often as wanted
#   kafka.sh env                 prints the export lines again
#   kafka.sh kill N              ends node N at once (SIGKILL); its data stays
#   kafka.sh halt N              stops node N cleanly; its data stays
#   kafka.sh resume N            starts node N again on its data
#   kafka.sh tool CLASS ARGS...  runs a class of Kafka's, or of the folder $KRABKA_TEST_KAFKA_CLASSES
#   kafka.sh classpath           prints the class path, to compile against: Kafka with its test classes
#   kafka.sh stop                ends all nodes and removes their data
#
# KRABKA_TEST_KAFKA_PORT  first port (19092): node N has this + 10 * (N - 1), the controller this + 1
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

VERSION=4.3.1
PROGRAM=$CACHE/kafka-$VERSION
PORT=${KRABKA_TEST_KAFKA_PORT:-19092}

port_of() { echo $((PORT + 10 * ($1 - 1))); }

say_env() {
  local n brokers=
  for n in $(seq "$(cat "$D/brokers")"); do brokers+=${brokers:+,}127.0.0.1:$(port_of "$n"); done
  cat <<END
export KRABKA_TEST_KAFKA_BOOTSTRAP_SERVERS=$brokers
export KRABKA_TEST_KAFKA_DIR=$D
END
}

maven_jars() {
  cat >"$NEW/pom.xml" <<END
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>krabka.test</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$VERSION</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>$VERSION</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-storage</artifactId><version>$VERSION</version><classifier>test</classifier></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>$VERSION</version><classifier>test</classifier></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.25.4</version></dependency>
  </dependencies>
</project>
END
  mvn -q -B -f "$NEW/pom.xml" dependency:copy-dependencies -DoutputDirectory="$NEW/jars"
}

do_install() { install_once "$PROGRAM" maven_jars; }

run_java() {
  java "-Dlog4j2.configurationFile=$D/log4j2.properties" \
    -cp "${KRABKA_TEST_KAFKA_CLASSES:+$KRABKA_TEST_KAFKA_CLASSES:}$PROGRAM/jars/*" "$@"
}

# Brokers log what they do, tools only what goes wrong.
write_logging() {
  cat >"$D/log4j2.properties" <<'END'
rootLogger.level=${sys:level:-error}
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.target=SYSTEM_ERR
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %c{1} %m%n
END
}

write_node() { # N TIERED LINE...
  local n=$1 tiered=$2 dir=$D/node-$1 roles=broker controller
  local listeners
  shift 2
  listeners=PLAINTEXT://127.0.0.1:$(port_of "$n")
  controller=127.0.0.1:$((PORT + 1))
  mkdir "$dir"
  cat >"$dir/server.properties" <<END
node.id=$n
controller.quorum.voters=1@$controller
controller.listener.names=CONTROLLER
advertised.listeners=$listeners
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs=$dir/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.check.interval.ms=500
log.initial.task.delay.ms=500
END
  if [ "$n" = 1 ]; then
    roles=broker,controller
    listeners+=,CONTROLLER://$controller
  fi
  printf '%s\n' "process.roles=$roles" "listeners=$listeners" >>"$dir/server.properties"
  if [ "$tiered" = 1 ]; then
    cat >>"$dir/server.properties" <<END
remote.log.storage.system.enable=true
remote.log.storage.manager.class.name=org.apache.kafka.server.log.remote.storage.LocalTieredStorage
remote.log.storage.manager.impl.prefix=rsm.config.
rsm.config.dir=$D/remote
rsm.config.delete.on.close=false
remote.log.metadata.manager.class.name=org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.impl.prefix=rlmm.config.
remote.log.metadata.manager.listener.name=PLAINTEXT
rlmm.config.remote.log.metadata.topic.replication.factor=1
rlmm.config.remote.log.metadata.topic.num.partitions=5
rlmm.config.remote.log.metadata.initialization.retry.interval.ms=200
remote.log.manager.task.interval.ms=500
remote.log.manager.thread.pool.size=2
END
  fi
  local line
  for line in "$@"; do
    sed -i "/^${line%%=*}=/d" "$dir/server.properties"
    echo "$line" >>"$dir/server.properties"
  done
}

start_node() { # N; the JVM's flags make it quick to start, not fast
  launch "$D/node-$1" broker.log java -Xms128m -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
    -Dlevel=info "-Dlog4j2.configurationFile=$D/log4j2.properties" -cp "$PROGRAM/jars/*" kafka.Kafka "$D/node-$1/server.properties"
}

node_is_ready() { listens "$(port_of "$1")" && grep -q 'Transition from STARTING to STARTED' "$D/node-$1/broker.log"; }

do_start() { # OPTIONS
  local brokers=1 tiered=0 lines=() ports=() n cluster
  while [ $# -gt 0 ]; do
    case $1 in
      --brokers) brokers=$2 && shift ;;
      --tiered) tiered=1 ;;
      --set) lines+=("$2") && shift ;;
      *) die "start: what is $1?" ;;
    esac
    shift
  done
  for n in $(seq "$brokers"); do ports+=("$(port_of "$n")"); done
  claim "${ports[@]}" $((PORT + 1))
  mkdir "$D/remote"
  echo "$brokers" >"$D/brokers"
  write_logging
  cluster=$(python3 -c 'import base64, os; print("k" + base64.urlsafe_b64encode(os.urandom(16)).decode()[1:22])')
  for n in $(seq "$brokers"); do
    write_node "$n" "$tiered" ${lines[@]+"${lines[@]}"}
    run_java kafka.tools.StorageTool format -t "$cluster" -c "$D/node-$n/server.properties" >"$D/node-$n/format.log" 2>&1
  done
  for n in $(seq "$brokers"); do start_node "$n"; done
  for n in $(seq "$brokers"); do wait_ready 90 node_is_ready "$n"; done
}

resume_node() { # N
  : >"$D/node-$1/broker.log"
  start_node "$1"
  wait_ready 90 node_is_ready "$1"
}

case ${1:-} in
  start)
    shift
    do_install
    do_start "$@"
    say_env
    ;;
  kill) end_processes "$D/node-$2" KILL 5 ;;
  halt) end_processes "$D/node-$2" TERM 60 ;;
  resume) resume_node "$2" ;;
  tool)
    shift
    do_install
    run_java "$@"
    ;;
  classpath)
    do_install
    echo "$PROGRAM/jars/*"
    ;;
  *) run_command "$@" ;;
esac
