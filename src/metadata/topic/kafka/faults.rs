//! What the client's errors mean for callers of the log.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::super::log_error::MetadataLogError;
use crate::error::ErrorSource;

/// The cause that an error keeps. One of a setting has the setting's value in it, which may be a
/// secret.
pub(super) fn cause(error: KafkaError) -> Option<ErrorSource> {
    match error {
        KafkaError::ClientConfig(..) => None,
        error => Some(ErrorSource::new(error)),
    }
}

/// A client that could not be made.
pub(super) fn client(error: KafkaError) -> MetadataLogError {
    let reason = match &error {
        KafkaError::ClientConfig(_, _, setting, _) => {
            format!("the Kafka client refuses the setting `{setting}`")
        }
        _ => "the Kafka client cannot be made with these settings".to_owned(),
    };
    MetadataLogError::Rejected {
        reason,
        source: cause(error),
    }
}

/// A read that failed.
pub(super) fn read(what: String, error: KafkaError) -> MetadataLogError {
    let code = error.rdkafka_error_code();
    let source = cause(error);
    match code {
        Some(code) if is_refusal(code) => MetadataLogError::Rejected {
            reason: format!("{what}: {}", what_to_do(code)),
            source,
        },
        _ => MetadataLogError::Unavailable {
            reason: what,
            source,
        },
    }
}

/// A publish that the client refused by itself: nothing was sent.
pub(super) fn not_sent(error: KafkaError) -> MetadataLogError {
    let code = error.rdkafka_error_code();
    let source = cause(error);
    match code {
        Some(code) if is_refusal(code) => MetadataLogError::Rejected {
            reason: format!("the event was not appended: {}", what_to_do(code)),
            source,
        },
        Some(RDKafkaErrorCode::QueueFull) => MetadataLogError::Publish {
            reason: "too many events wait for the brokers".to_owned(),
            source,
        },
        _ => MetadataLogError::Publish {
            reason: "the Kafka client did not take it".to_owned(),
            source,
        },
    }
}

/// A publish that the client reports as failed. `was_disrupted`: a connection was lost meanwhile,
/// so that an earlier attempt may have been the one that counts. `fatal`: why the producer can go
/// on no longer.
pub(super) fn not_delivered(
    error: KafkaError,
    was_disrupted: bool,
    fatal: Option<RDKafkaErrorCode>,
) -> MetadataLogError {
    // A producer without the right to write gives up what it holds, and says of that only so much.
    let was_given_up = error.rdkafka_error_code() == Some(RDKafkaErrorCode::PurgeQueue);
    let error = match fatal {
        Some(code) if was_given_up => KafkaError::MessageProduction(code),
        _ => error,
    };
    let code = error.rdkafka_error_code();
    if let Some(code) = code
        && is_refusal(code)
        && !was_disrupted
    {
        return not_sent(error);
    }
    let reason = match code {
        Some(RDKafkaErrorCode::PurgeQueue | RDKafkaErrorCode::PurgeInflight) => {
            "the log was closed before a broker had acknowledged it"
        }
        _ => "the brokers' answers leave it open",
    };
    MetadataLogError::OutcomeUnknown {
        reason: reason.to_owned(),
        source: cause(error),
    }
}

/// Whether brokers will say the same again until somebody changes something.
pub(super) fn is_refusal(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    is_about_the_topic(code)
        || matches!(
            code,
            Code::ClusterAuthorizationFailed
                | Code::GroupAuthorizationFailed
                | Code::SaslAuthenticationFailed
                | Code::UnsupportedSASLMechanism
                | Code::Authentication
                | Code::SSL
                | Code::MessageSizeTooLarge
                | Code::MessageBatchTooLarge
                | Code::PolicyViolation
                | Code::InvalidConfig
                | Code::InvalidReplicationFactor
                | Code::InvalidPartitions
                | Code::UnsupportedVersion
                | Code::UnsupportedFeature
                | Code::UnsupportedForMessageFormat
        )
}

/// Whether the client keeps this in mind about the topic, until it asks for its metadata again.
pub(super) fn is_about_the_topic(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::TopicAuthorizationFailed
            | Code::UnknownTopicOrPartition
            | Code::UnknownTopic
            | Code::UnknownPartition
            | Code::InvalidTopic
    )
}

fn what_to_do(code: RDKafkaErrorCode) -> &'static str {
    use RDKafkaErrorCode as Code;
    match code {
        Code::TopicAuthorizationFailed => {
            "the user has no right to do this with the topic: Describe, Read and Write are needed, \
             and Create and DescribeConfigs to create it"
        }
        Code::ClusterAuthorizationFailed => "the user has no right to do this in the cluster",
        Code::GroupAuthorizationFailed => "the user has no right to use the consumer group",
        Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism | Code::Authentication => {
            "the brokers do not accept the credentials: check `security.sasl` (of client properties \
             `sasl.mechanism` and `sasl.jaas.config`), and that the port takes SASL"
        }
        Code::SSL => {
            "TLS was not agreed on: check `security.protocol` and `security.trust_roots` (of client \
             properties `ssl.truststore.location` or `.certificates`)"
        }
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition => {
            "the topic, or the partition, does not exist (any more)"
        }
        Code::InvalidTopic => "the brokers do not accept the topic's name",
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge => {
            "it is larger than the topic takes: see `max.message.bytes`"
        }
        Code::InvalidReplicationFactor => {
            "the cluster has fewer brokers than `replication` asks for"
        }
        Code::InvalidPartitions => "the brokers do not accept `num_partitions`",
        Code::InvalidConfig => "the brokers do not accept the topic's settings",
        Code::PolicyViolation => "a policy of the cluster forbids it",
        _ => "the brokers do not offer this",
    }
}
