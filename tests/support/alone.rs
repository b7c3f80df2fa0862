//! A test with a process to itself.

use std::any::type_name;
use std::env;
use std::process::Command;

use parking_lot::Mutex;

/// Set in the process that is the test's own.
const VARIABLE: &str = "KRABKA_TEST_ALONE";

/// Runs `test`, a closure in the body of a `#[test]`, in a new process of this program that runs
/// nothing else. One at a time.
pub fn alone<F: FnOnce()>(test: F) {
    static ONE: Mutex<()> = Mutex::new(());

    if env::var_os(VARIABLE).is_some() {
        return test();
    }
    let _one = ONE.lock();
    let (_, name) = type_name::<F>().split_once("::").unwrap();
    let name = name.trim_end_matches("::{{closure}}");
    let ended = Command::new(env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(VARIABLE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    print!("{said}");
    eprint!("{}", String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{name}: {}", ended.status);
    assert!(said.contains("1 passed"), "{name} is no test");
}
