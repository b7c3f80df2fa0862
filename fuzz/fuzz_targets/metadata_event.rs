#![no_main]

use krabka_remote_storage::topic::MetadataEvent;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|value: &[u8]| {
    let Ok(event) = MetadataEvent::decode(value) else {
        return;
    };
    let written = event.encode();
    // Longer forms of a number and unknown tags are gone; the custom metadata is all that stays long.
    assert!(written.len() <= value.len());
    let again = MetadataEvent::decode(&written).expect("what was written");
    assert_eq!(again, event);
    assert_eq!(again.encode(), written);
    let _ = event.check_publishable();
});
