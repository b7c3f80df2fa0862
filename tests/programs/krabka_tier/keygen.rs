//! `krabka-tier keygen`.

use std::fs;
use std::process::Command;

use krabka_remote_storage::archive::{FileSigner, ManifestPublicKey, ManifestSigner as _};

use crate::support::program::{Scratch, run};

#[test]
fn a_key_is_made_once_and_its_halves_belong_together() {
    let scratch = Scratch::new();
    let key = scratch.path("worm.pem");
    let out = key.to_str().unwrap();
    let said = run(&["keygen", "--out", out]).ok().text();
    let signer = FileSigner::load("id", &key).unwrap();
    let public = ManifestPublicKey::load(&scratch.path("worm.pub.pem")).unwrap();
    assert_eq!(signer.public_key(), &public);
    assert!(said.contains(&public.to_string()), "{said}");

    let (before, public_before) = (fs::read(&key).unwrap(), said);
    run(&["keygen", "--out", out]).fails(1, &["worm.pem", "not overwritten"]);
    fs::remove_file(&key).unwrap();
    run(&["keygen", "--out", out]).fails(1, &["worm.pub.pem", "not overwritten"]);
    assert!(!key.exists());
    let secret = String::from_utf8(before).unwrap();
    let secret = secret.lines().nth(1).unwrap();
    assert!(
        !public_before.contains(secret),
        "the private key is never shown"
    );
}

#[test]
fn keys_of_openssl_and_of_keygen_are_the_same_to_each_other() {
    let scratch = Scratch::new();
    let openssl = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).output();
        output.ok().map(|output| {
            assert!(output.status.success(), "{output:?}");
            output.stdout
        })
    };
    let Some(_) = openssl(&["version"]) else {
        eprintln!("skipped: there is no openssl");
        return;
    };
    let (key, public) = (scratch.path("worm.pem"), scratch.path("worm.pub.pem"));
    run(&["keygen", "--out", key.to_str().unwrap()]).ok();
    let made = openssl(&["pkey", "-in", key.to_str().unwrap(), "-pubout"]).unwrap();
    assert_eq!(made, fs::read(public).unwrap());

    let theirs = scratch.path("openssl.pem");
    let theirs = theirs.to_str().unwrap();
    openssl(&["genpkey", "-algorithm", "ed25519", "-out", theirs]).unwrap();
    let signer = FileSigner::load("id", scratch.path("openssl.pem").as_path()).unwrap();
    let public = scratch.path("openssl.pub.pem");
    openssl(&[
        "pkey",
        "-in",
        theirs,
        "-pubout",
        "-out",
        public.to_str().unwrap(),
    ])
    .unwrap();
    assert_eq!(
        signer.public_key(),
        &ManifestPublicKey::load(&public).unwrap()
    );
}
