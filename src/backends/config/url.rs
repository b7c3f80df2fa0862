//! The URL form of a store's configuration.

use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use super::ObjectStoreConfig;
use super::env::Environment;
use crate::error::RemoteStorageError;
#[cfg(feature = "_http")]
use crate::layout::KeyPrefix;

/// Reads a configuration from `url`, and from `environment` what is not in it.
///
/// No message repeats anything of the URL: a secret may stand in a part where none belongs.
#[cfg_attr(not(feature = "_http"), expect(unused_variables))]
pub(in crate::backends) fn parse(
    url: &str,
    environment: &Environment,
) -> Result<ObjectStoreConfig, RemoteStorageError> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(unknown_scheme());
    };
    if rest.contains('?') {
        return Err(invalid(
            "the tier URL has a query string: settings and credentials come from the environment \
             (write a `?` in a name as %3F)",
        ));
    }
    if rest.contains('#') {
        return Err(invalid(
            "the tier URL has a fragment (write a `#` in a name as %23)",
        ));
    }
    let (authority, path) = match rest.find('/') {
        Some(slash) => rest.split_at(slash),
        None => (rest, ""),
    };
    // A `:` alone may be what a secret key with a `/` in it leaves before its `@`.
    if authority.contains(['@', ':']) {
        return Err(invalid(
            "the tier URL has user info or a port: credentials and endpoint come from the \
             environment",
        ));
    }
    match scheme.to_ascii_lowercase().as_str() {
        "file" => local(authority, path),
        "memory" => memory(authority, path),
        #[cfg(feature = "aws")]
        "s3" => super::S3Config::from_environment(authority, key_prefix(path)?, environment)
            .map(ObjectStoreConfig::S3),
        #[cfg(not(feature = "aws"))]
        "s3" => Err(feature_is_off("s3", "aws")),
        #[cfg(feature = "gcp")]
        "gs" => super::GcsConfig::from_environment(authority, key_prefix(path)?, environment)
            .map(ObjectStoreConfig::Gcs),
        #[cfg(not(feature = "gcp"))]
        "gs" => Err(feature_is_off("gs", "gcp")),
        #[cfg(feature = "azure")]
        "az" => super::AzureConfig::from_environment(authority, key_prefix(path)?, environment)
            .map(ObjectStoreConfig::Azure),
        #[cfg(not(feature = "azure"))]
        "az" => Err(feature_is_off("az", "azure")),
        _ => Err(unknown_scheme()),
    }
}

fn local(authority: &str, path: &str) -> Result<ObjectStoreConfig, RemoteStorageError> {
    if !matches!(authority, "" | "localhost") || !path.starts_with('/') {
        return Err(invalid(
            "a file URL needs the absolute path of a directory: file:///DIRECTORY",
        ));
    }
    let path: Vec<u8> = percent_decode_str(path).collect();
    if path.contains(&0) {
        return Err(invalid("the path of the file URL holds a NUL character"));
    }
    Ok(ObjectStoreConfig::Local {
        root: path_from_bytes(path)?,
    })
}

fn memory(authority: &str, path: &str) -> Result<ObjectStoreConfig, RemoteStorageError> {
    if !authority.is_empty() || !matches!(path, "" | "/") {
        return Err(invalid(
            "the URL of a tier in memory is memory:/// and no more",
        ));
    }
    Ok(ObjectStoreConfig::InMemory)
}

/// The prefix of the keys, decoded and without slashes around it.
#[cfg(feature = "_http")]
fn key_prefix(path: &str) -> Result<Option<String>, RemoteStorageError> {
    let decoded = percent_decode_str(path)
        .decode_utf8()
        .map_err(|_| invalid("the prefix in the tier URL is not UTF-8"))?;
    let prefix = KeyPrefix::new(&decoded).map_err(|_| {
        invalid(
            "the prefix in the tier URL cannot stand in an object key: leave out `//`, `.` and \
             `..` segments and control characters",
        )
    })?;
    let prefix = prefix.as_path().as_ref();
    Ok((!prefix.is_empty()).then(|| prefix.to_owned()))
}

#[cfg(unix)]
#[expect(
    clippy::unnecessary_wraps,
    reason = "not every platform takes any bytes"
)]
fn path_from_bytes(path: Vec<u8>) -> Result<PathBuf, RemoteStorageError> {
    use std::os::unix::ffi::OsStringExt;
    Ok(std::ffi::OsString::from_vec(path).into())
}

#[cfg(not(unix))]
fn path_from_bytes(path: Vec<u8>) -> Result<PathBuf, RemoteStorageError> {
    String::from_utf8(path)
        .map(PathBuf::from)
        .map_err(|_| invalid("the path of the file URL is not UTF-8"))
}

fn unknown_scheme() -> RemoteStorageError {
    invalid("a tier URL begins with file:///, memory:///, s3://, gs:// or az://")
}

#[cfg(not(all(feature = "aws", feature = "gcp", feature = "azure")))]
fn feature_is_off(scheme: &str, feature: &str) -> RemoteStorageError {
    invalid(&format!(
        "{scheme}:// needs the feature `{feature}`, which this program was built without"
    ))
}

fn invalid(text: &str) -> RemoteStorageError {
    RemoteStorageError::InvalidArgument(text.to_owned())
}
