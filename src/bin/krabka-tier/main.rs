//! `krabka-tier`: copies, lists, reads and removes segments of a remote tier.

fn main() {}
