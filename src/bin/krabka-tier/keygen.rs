//! `krabka-tier keygen`: a key to sign an archive with.

use std::path::PathBuf;

use clap::Args;
use krabka_remote_storage::RemoteStorageError;
use krabka_remote_storage::archive::generate_key;

use crate::failure::Failure;
use crate::output::{Audience, Output};

/// Makes an Ed25519 key to sign an archive with: the private key as PKCS#8 in PEM, which only its owner
/// can read, and its public half beside it, as `KEY.pub.pem`, for `krabka-worm-verify`.
///
/// No file is overwritten.
#[derive(Args, Debug)]
pub(crate) struct KeygenArgs {
    /// The file for the private key.
    #[arg(long, value_name = "KEY.pem")]
    out: PathBuf,
}

pub(crate) fn run(args: &KeygenArgs) -> Result<(), Failure> {
    let made = generate_key(&args.out).map_err(RemoteStorageError::from)?;
    let mut output = Output::new(Audience::People);
    output.line(format_args!("private key: {}", made.path.display()))?;
    output.line(format_args!("public key:  {}", made.public_path.display()))?;
    output.line(format_args!("its bytes:   {}", made.public_key))?;
    output.flush()
}
