//! Text from outside, made fit for a line of output.

use std::fmt::{self, Write as _};

/// Shows a text so that it cannot forge output: control characters and all that is not ASCII
/// stand as `\u{…}`.
///
/// Keys, topics and key ids of an archive are text that an attacker may have chosen. A line break
/// or a terminal's escape sequence in one of them must not look like a verdict.
#[derive(Clone, Copy, Debug)]
pub struct Printable<'a>(pub &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if matches!(c, ' '..='~') {
                f.write_char(c)?;
            } else {
                write!(f, "\\u{{{:x}}}", u32::from(c))?;
            }
        }
        Ok(())
    }
}

/// The start of a text of any length, fit for an error message.
pub(crate) fn excerpt(text: &str) -> String {
    const MOST_CHARS: usize = 200;
    match text.char_indices().nth(MOST_CHARS) {
        None => Printable(text).to_string(),
        Some((end, _)) => format!("{}…", Printable(&text[..end])),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_printable_ascii_is_shown_as_it_is() {
        assert_eq!(
            Printable("a b\\~\n\u{1b}[2K\u{7f}é\u{2028}").to_string(),
            "a b\\~\\u{a}\\u{1b}[2K\\u{7f}\\u{e9}\\u{2028}"
        );
    }

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        assert_eq!(excerpt(&"a".repeat(200)), "a".repeat(200));
        assert_eq!(excerpt(&"a".repeat(201)), "a".repeat(200) + "…");
        assert_eq!(excerpt(&"é".repeat(1000)), "\\u{e9}".repeat(200) + "…");
    }

    proptest! {
        #[test]
        fn no_text_leaves_its_line(text in any::<String>()) {
            let shown = Printable(&text).to_string();
            prop_assert!(shown.chars().all(|c| matches!(c, ' '..='~')), "{}", shown);
        }
    }
}
