//! Makes a signing key, as two files.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use ed25519_dalek::SigningKey;
use rand::TryRngCore as _;
use rand::rngs::OsRng;
use tempfile::{Builder, NamedTempFile};
use zeroize::Zeroizing;

use super::key_file::{self, failed};
use super::signer::ManifestPublicKey;
use crate::error::WormError;

/// A signing key that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GeneratedKey {
    /// The file with the private key.
    pub path: PathBuf,
    /// The file with the public key, beside it.
    pub public_path: PathBuf,
    /// The public key.
    pub public_key: ManifestPublicKey,
}

/// Makes an Ed25519 key and writes it to `path`, as PKCS#8 in PEM, for
/// [`FileSigner::load`](super::FileSigner::load); and its public half, as `SubjectPublicKeyInfo` in
/// PEM, beside it: `KEY.pub.pem` for `KEY.pem`.
///
/// Nobody but the owner can read the private key (mode 0600, on Unix). When this returns, both
/// files are durable. No file is overwritten, and none is ever there in part; a crash between the
/// two leaves the private key alone, from which the other can be made.
///
/// # Errors
///
/// [`SigningKey`](WormError::SigningKey) when one of the files is there already or cannot be
/// written: then there is neither.
pub fn generate_key(path: &Path) -> Result<GeneratedKey, WormError> {
    let public_path = public_path(path);
    for path in [path, &public_path] {
        if fs::symlink_metadata(path).is_ok() {
            return Err(failed(
                path,
                "it is there already, and keys are not overwritten",
            ));
        }
    }
    let mut seed = Zeroizing::new([0; 32]);
    OsRng
        .try_fill_bytes(&mut *seed)
        .map_err(|error| failed(path, &format!("no random bytes to be had: {error}")))?;
    let public = SigningKey::from_bytes(&seed).verifying_key();
    let public_key = ManifestPublicKey::from_bytes(public.as_bytes())?;
    let secret_text = key_file::encode_secret(&seed).map_err(|error| failed(path, &error))?;
    let public_text =
        key_file::encode_public(public.as_bytes()).map_err(|error| failed(path, &error))?;

    let cannot = |path: &Path| {
        let path = path.to_owned();
        move |error: io::Error| failed(&path, &format!("cannot write it: {error}"))
    };
    let secret_file = staged(path, 0o600, secret_text.as_bytes()).map_err(cannot(path))?;
    let public_file =
        staged(&public_path, 0o644, public_text.as_bytes()).map_err(cannot(&public_path))?;
    publish(secret_file, path).map_err(cannot(path))?;
    if let Err(error) = publish(public_file, &public_path) {
        // It was made here, and nobody has been told of it.
        let _ = fs::remove_file(path);
        return Err(cannot(&public_path)(error));
    }
    Ok(GeneratedKey {
        path: path.to_owned(),
        public_path,
        public_key,
    })
}

/// `KEY.pub.pem` for `KEY.pem`, and for `KEY`.
fn public_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default();
    let mut public = match path.extension() {
        Some(extension) if extension == "pem" => path.file_stem().unwrap_or(name).to_owned(),
        _ => name.to_owned(),
    };
    public.push(".pub.pem");
    path.with_file_name(public)
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A file with these bytes, durable, that has no name yet to be found by.
fn staged(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<NamedTempFile> {
    if path.file_name().is_none() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it names no file",
        ));
    }
    let mut builder = Builder::new();
    builder.prefix(".krabka-key.").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(fs::Permissions::from_mode(mode));
    }
    #[cfg(not(unix))]
    let _ = mode;
    let mut file = builder.tempfile_in(directory_of(path))?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// Gives a staged file its name, unless something has it.
fn publish(file: NamedTempFile, path: &Path) -> io::Result<()> {
    file.persist_noclobber(path).map_err(|error| error.error)?;
    if cfg!(unix) {
        File::open(directory_of(path))?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::signer::{FileSigner, ManifestSigner as _};
    use super::*;

    fn files(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn a_made_key_signs_and_its_public_half_verifies() {
        let dir = tempfile::tempdir().unwrap();
        let made = generate_key(&dir.path().join("worm.pem")).unwrap();
        assert_eq!(files(dir.path()), ["worm.pem", "worm.pub.pem"]);
        let signer = FileSigner::load("id", &made.path).unwrap();
        let public = ManifestPublicKey::load(&made.public_path).unwrap();
        assert_eq!(
            (signer.public_key(), public),
            (&made.public_key, made.public_key)
        );
        let signature = signer.sign(b"message").await.unwrap();
        assert!(public.verifies(b"message", &signature));

        let other = generate_key(&dir.path().join("other")).unwrap();
        assert_eq!(other.public_path, dir.path().join("other.pub.pem"));
        assert_ne!(other.public_key, made.public_key);
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_can_read_the_private_key() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let made = generate_key(&dir.path().join("worm.pem")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&made.path), 0o600);
        assert_eq!(mode(&made.public_path) & 0o400, 0o400);
    }

    #[test]
    fn neither_file_is_overwritten_and_neither_is_left_alone() {
        for taken in ["worm.pem", "worm.pub.pem"] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(taken), "precious").unwrap();
            let error = generate_key(&dir.path().join("worm.pem")).unwrap_err();
            assert!(error.to_string().contains("not overwritten"), "{error}");
            assert_eq!(files(dir.path()), [taken]);
            assert_eq!(fs::read(dir.path().join(taken)).unwrap(), b"precious");
        }
        // A name that appears in between.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let file = staged(&path, 0o600, b"mine").unwrap();
        fs::write(&path, "theirs").unwrap();
        publish(file, &path).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
        assert_eq!(files(dir.path()), ["key"]);
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        for path in [
            dir.path().join("no/such/key.pem"),
            PathBuf::from("/"),
            dir.path().join(".."),
        ] {
            generate_key(&path).unwrap_err();
        }
        assert!(files(dir.path()).is_empty());
    }
}
