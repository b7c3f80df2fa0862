#!/usr/bin/env bash
# Apache Kafka (KRaft) on 127.0.0.1, from its Maven artifacts. Needs Java 17, Maven, and for --secure openssl.
#
#   kafka.sh install             the jars
#   kafka.sh start [OPTIONS]     installs, starts, waits until every broker answers; prints export lines
#       --brokers N              N brokers (1); node 1 is the controller too
#       --tiered                 tiered storage on, with LocalTieredStorage and TopicBasedRemoteLogMetadataManager
#       --secure                 a SASL_SSL listener beside the plain one, for PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512, and an
#                                authorizer: the one user may do everything, the other nothing
#       --set KEY=VALUE          one more line of server.properties, as often as wanted
#   kafka.sh env                 prints the export lines again
#   kafka.sh kill N              ends node N at once (SIGKILL); its data stays
#   kafka.sh halt N              stops node N cleanly; its data stays
#   kafka.sh resume N            starts node N again on its data
#   kafka.sh tool CLASS ARGS...  runs a class of Kafka's, or of the folder $KRABKA_TEST_KAFKA_CLASSES
#   kafka.sh classpath           prints the class path, to compile against: Kafka with its test classes
#   kafka.sh stop                ends all nodes and removes their data
#
# KRABKA_TEST_KAFKA_PORT  first port (19092): node N has this + 10 * (N - 1), the controller this + 1, SASL_SSL of node N its
#                         port + 2
# KRABKA_TEST_KAFKA_NAME  name of its folder (kafka). With another name and port it runs beside the first
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

VERSION=4.3.1
PROGRAM=$CACHE/kafka-$VERSION
PORT=${KRABKA_TEST_KAFKA_PORT:-19092}
D=$STATE/${KRABKA_TEST_KAFKA_NAME:-$NAME}
SASL_USER=krabka
SASL_PASSWORD=krabka-test-secret
STRANGER=stranger
STRANGER_PASSWORD=stranger-test-secret

port_of() { echo $((PORT + 10 * ($1 - 1))); }

say_env() {
  local n brokers='' secure=''
  for n in $(seq "$(cat "$D/brokers")"); do
    brokers+=${brokers:+,}127.0.0.1:$(port_of "$n")
    secure+=${secure:+,}localhost:$(($(port_of "$n") + 2))
  done
  cat <<END
export KRABKA_TEST_KAFKA_BOOTSTRAP_SERVERS=$brokers
export KRABKA_TEST_KAFKA_DIR=$D
END
  if [ ! -d "$D/tls" ]; then return; fi
  cat <<END
export KRABKA_TEST_KAFKA_SECURE_BOOTSTRAP_SERVERS=$secure
export KRABKA_TEST_KAFKA_SECURE_CA=$D/tls/ca.pem
export KRABKA_TEST_KAFKA_SECURE_WRONG_CA=$D/tls/wrong-ca.pem
export KRABKA_TEST_KAFKA_SECURE_USER=$SASL_USER
export KRABKA_TEST_KAFKA_SECURE_PASSWORD=$SASL_PASSWORD
export KRABKA_TEST_KAFKA_SECURE_STRANGER=$STRANGER
export KRABKA_TEST_KAFKA_SECURE_STRANGER_PASSWORD=$STRANGER_PASSWORD
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

do_install() {
  local program
  for program in java mvn; do
    if ! command -v "$program" >/dev/null; then
      die "needs Java 17 and Maven, and there is no $program. On Debian: apt-get install openjdk-17-jdk-headless maven"
    fi
  done
  install_once "$PROGRAM" maven_jars
}

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

authority() { # NAME
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=krabka test $1" -keyout "$1.key" -out "$1.pem"
}

# A certificate authority, a certificate of the brokers that it signed, and an authority of the same kind that did not.
make_certificates() {
  mkdir "$D/tls"
  (
    cd "$D/tls"
    authority ca
    authority wrong-ca
    openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout broker.key -out broker.csr
    openssl x509 -req -in broker.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out broker.crt \
      -extfile <(echo subjectAltName=DNS:localhost,IP:127.0.0.1)
    cat broker.key broker.crt >broker.pem
  ) >"$D/tls.log" 2>&1
}

write_node() { # N TIERED SECURE LINE...
  local n=$1 tiered=$2 secure=$3 dir=$D/node-$1 roles=broker controller
  local listeners advertised
  shift 3
  listeners=PLAINTEXT://127.0.0.1:$(port_of "$n")
  advertised=$listeners
  if [ "$secure" = 1 ]; then
    # Clients compare the name that they connect to with the certificate: some with names only.
    listeners+=,SECURE://127.0.0.1:$(($(port_of "$n") + 2))
    advertised+=,SECURE://localhost:$(($(port_of "$n") + 2))
  fi
  controller=127.0.0.1:$((PORT + 1))
  mkdir "$dir"
  cat >"$dir/server.properties" <<END
node.id=$n
controller.quorum.voters=1@$controller
controller.listener.names=CONTROLLER
advertised.listeners=$advertised
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL
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
  if [ "$secure" = 1 ]; then
    cat >>"$dir/server.properties" <<END
ssl.keystore.type=PEM
ssl.keystore.location=$D/tls/broker.pem
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_$SASL_USER="$SASL_PASSWORD" user_$STRANGER="$STRANGER_PASSWORD";
listener.name.secure.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:$SASL_USER;User:ANONYMOUS
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
  local brokers=1 tiered=0 secure=0 lines=() ports=() users=() n cluster mechanism
  while [ $# -gt 0 ]; do
    case $1 in
      --brokers) brokers=$2 && shift ;;
      --tiered) tiered=1 ;;
      --secure) secure=1 ;;
      --set) lines+=("$2") && shift ;;
      *) die "start: what is $1?" ;;
    esac
    shift
  done
  for n in $(seq "$brokers"); do
    ports+=("$(port_of "$n")")
    if [ "$secure" = 1 ]; then ports+=($(($(port_of "$n") + 2))); fi
  done
  claim "${ports[@]}" $((PORT + 1))
  mkdir "$D/remote"
  echo "$brokers" >"$D/brokers"
  write_logging
  if [ "$secure" = 1 ]; then
    make_certificates
    for mechanism in SCRAM-SHA-256 SCRAM-SHA-512; do
      users+=(--add-scram "$mechanism=[name=$SASL_USER,password=$SASL_PASSWORD]")
      users+=(--add-scram "$mechanism=[name=$STRANGER,password=$STRANGER_PASSWORD]")
    done
  fi
  cluster=$(python3 -c 'import base64, os; print("k" + base64.urlsafe_b64encode(os.urandom(16)).decode()[1:22])')
  for n in $(seq "$brokers"); do
    write_node "$n" "$tiered" "$secure" ${lines[@]+"${lines[@]}"}
    run_java kafka.tools.StorageTool format -t "$cluster" -c "$D/node-$n/server.properties" \
      ${users[@]+"${users[@]}"} >"$D/node-$n/format.log" 2>&1
  done
  for n in $(seq "$brokers"); do start_node "$n"; done
  for n in $(seq "$brokers"); do wait_ready 90 node_is_ready "$n"; done
}

known_node() { # N
  if [ ! -d "$D/node-${1:-}" ]; then die "there is no node ${1:-without a number}"; fi
}

resume_node() { # N
  known_node "$1"
  if [ -e "$D/node-$1/processes" ] && listens "$(port_of "$1")"; then die "node $1 is running"; fi
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
  kill)
    known_node "${2:-}"
    end_processes "$D/node-$2" KILL 5
    ;;
  halt)
    known_node "${2:-}"
    end_processes "$D/node-$2" TERM 60
    ;;
  resume) resume_node "${2:-}" ;;
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
