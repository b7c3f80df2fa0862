//! Reads the texts that `object_store` prints, and leaves out what must not be told.
//!
//! A request's URL can hold credentials (user info, a SAS token, a presigned query), and an error
//! page can repeat what was sent: S3 answers an expired token with the token, and a wrong signature
//! with the signed headers. So of a URL the user info and the query go, and of an error page only
//! its code and message stay.

/// What stands in the place of a secret.
const REDACTED: &str = "REDACTED";

/// How much of an error page's message is kept, in characters.
const MAX_MESSAGE_CHARS: usize = 300;

/// The answer of a server with which a request failed, as `object_store` prints it.
///
/// The types that carry it are private to `object_store`, so it is read from the text; a test with
/// a real client notices when the text changes.
pub(super) struct ServerAnswer<'a> {
    /// The HTTP status; `None` for an error that came with status 200, inside the body.
    pub(super) status: Option<u16>,
    /// The error page.
    pub(super) body: &'a str,
    /// The text up to the body.
    head: &'a str,
}

impl<'a> ServerAnswer<'a> {
    const STATUS: &'static str = "Server returned non-2xx status code: ";
    const ERROR_IN_BODY: &'static str = "Server returned error response: ";

    /// The answer that the text is about as a whole: not one that it repeats.
    pub(super) fn of(text: &'a str) -> Option<Self> {
        let stated = text.starts_with(Self::STATUS) || text.starts_with(Self::ERROR_IN_BODY);
        stated.then(|| Self::in_text(text)).flatten()
    }

    /// The first answer in the text. Whatever follows belongs to it: `object_store` prints causes
    /// last.
    fn in_text(text: &'a str) -> Option<Self> {
        if let Some(start) = text.find(Self::STATUS) {
            let stated = &text[start + Self::STATUS.len()..];
            let (line, body) = stated.split_once(": ").unwrap_or((stated, ""));
            let status = line.get(..3).and_then(|digits| digits.parse().ok());
            return Some(Self {
                status: status.filter(|status| (100..600).contains(status)),
                body,
                head: &text[..text.len() - body.len()],
            });
        }
        let start = text.find(Self::ERROR_IN_BODY)? + Self::ERROR_IN_BODY.len();
        Some(Self {
            status: None,
            body: &text[start..],
            head: &text[..start],
        })
    }
}

/// The text without the user info and queries of its URLs, and with error pages cut down to their
/// code and message.
pub(super) fn redact(text: &str) -> String {
    let Some(answer) = ServerAnswer::in_text(text) else {
        return redact_urls(text);
    };
    let head = redact_urls(answer.head);
    match page_message(answer.body) {
        Some(message) => head + &redact_urls(&message),
        None => head.trim_end_matches([':', ' ']).to_owned(),
    }
}

/// What an error page says, in one line: its code and message.
fn page_message(page: &str) -> Option<String> {
    let message = if page.contains("<Code>") {
        match (element(page, "Code"), element(page, "Message")) {
            (Some(code), Some(message)) => format!("{code}: {message}"),
            (code, _) => code?.to_owned(),
        }
    } else if let Ok(page) = serde_json::from_str::<serde_json::Value>(page) {
        // Google's services, OAuth token services, other JSON.
        ["/error/message", "/error_description", "/error", "/message"]
            .into_iter()
            .find_map(|pointer| page.pointer(pointer)?.as_str())?
            .to_owned()
    } else if page.trim_start().starts_with('<') {
        // A proxy's HTML says no more than the status does.
        return None;
    } else {
        page.to_owned()
    };
    let mut line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(MAX_MESSAGE_CHARS) {
        line.truncate(end);
        line.push('…');
    }
    (!line.is_empty()).then_some(line)
}

fn element<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let (_, content) = page.split_once(&format!("<{name}>"))?;
    let (content, _) = content.split_once(&format!("</{name}>"))?;
    Some(content)
}

fn redact_urls(text: &str) -> String {
    const SCHEME_END: &str = "://";
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(SCHEME_END) {
        let (before, url) = rest.split_at(start + SCHEME_END.len());
        let end = url
            .find(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '<' | '>'))
            .unwrap_or(url.len());
        let (url, after) = url.split_at(end);
        told.push_str(before);
        match (url.rfind('@'), url.find('?')) {
            (None, None) => told.push_str(url),
            (None, Some(query)) => {
                told.push_str(&url[..=query]);
                told.push_str(REDACTED);
            }
            // A `?` before an `@`: a query, or a password. Nothing of it can be told.
            (Some(at), Some(query)) if query < at => told.push_str(REDACTED),
            // A password may hold a `/`, so all that is before the last `@` goes.
            (Some(at), query) => {
                told.push_str(REDACTED);
                told.push_str(&url[at..query.map_or(url.len(), |query| query + 1)]);
                if query.is_some() {
                    told.push_str(REDACTED);
                }
            }
        }
        rest = after;
    }
    told + rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn user_info_and_queries_of_urls_are_left_out() {
        for (text, told) in [
            ("no URL at all? me@home", "no URL at all? me@home"),
            (
                "GET http://host/a%20b in 1ms",
                "GET http://host/a%20b in 1ms",
            ),
            (
                "GET https://AKIA-MARKED:secret@host:9000/b/k?sig=MARKED&x=1 in 1ms",
                "GET https://REDACTED@host:9000/b/k?REDACTED in 1ms",
            ),
            ("https://host/k?sig=MARKED", "https://host/k?REDACTED"),
            ("https://a:MARKED@host", "https://REDACTED@host"),
            ("https://a:MAR/KED@host/k", "https://REDACTED@host/k"),
            ("https://a:MARKED?x@host/k", "https://REDACTED"),
            ("https://host/k?sig=MARKED@x", "https://REDACTED"),
            (
                "\"http://u:MARKED@h\" or <http://h?MARKED>",
                "\"http://REDACTED@h\" or <http://h?REDACTED>",
            ),
            ("://", "://"),
            ("é://ü@é?ö", "é://REDACTED@é?REDACTED"),
        ] {
            assert_eq!(redact(text), told);
        }
    }

    #[test]
    fn of_an_error_page_code_and_message_stay() {
        for (page, told) in [
            ("", ""),
            (
                "<?xml version=\"1.0\"?><Error><Code>ExpiredToken</Code><Message>The provided token \
                 has expired.</Message><Token-0>MARKED</Token-0></Error>",
                ": ExpiredToken: The provided token has expired.",
            ),
            (
                "<Error><Code>SlowDown</Code><Key>MARKED</Key></Error>",
                ": SlowDown",
            ),
            (
                "\u{feff}<Error><Code>AuthenticationFailed</Code><Message>Not so.\nRequestId:1\nTime:2\
                 </Message><AuthenticationErrorDetail>MARKED</AuthenticationErrorDetail></Error>",
                ": AuthenticationFailed: Not so. RequestId:1 Time:2",
            ),
            (
                r#"{"error":{"code":403,"message":"no storage.objects.get","d":"MARKED"}}"#,
                ": no storage.objects.get",
            ),
            (
                r#"{"error":"invalid_grant","error_description":"Bad Request","t":"MARKED"}"#,
                ": Bad Request",
            ),
            (r#"{"token":"MARKED"}"#, ""),
            ("<html><body>MARKED</body></html>", ""),
            ("<Error><Code>MARKED", ""),
            (
                "upstream  http://u:MARKED@h gone\n",
                ": upstream http://REDACTED@h gone",
            ),
        ] {
            assert_eq!(
                redact(&format!(
                    "Server returned non-2xx status code: 503 Service Unavailable: {page}"
                )),
                format!("Server returned non-2xx status code: 503 Service Unavailable{told}"),
            );
            assert_eq!(
                redact(&format!("Server returned error response: {page}")),
                format!("Server returned error response{told}"),
            );
        }
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let text = format!("Server returned error response: {}", "é".repeat(1000));
        assert_eq!(
            redact(&text),
            format!("Server returned error response: {}…", "é".repeat(300))
        );
    }

    #[test]
    fn an_answer_inside_a_longer_text_is_no_answer_of_that_text() {
        let answer = "Server returned non-2xx status code: 404 Not Found: gone";
        let found = ServerAnswer::of(answer).unwrap();
        assert_eq!((found.status, found.body), (Some(404), "gone"));
        assert!(ServerAnswer::of(&format!("Error performing GET k - {answer}")).is_none());
        let found = ServerAnswer::of("Server returned error response: SlowDown").unwrap();
        assert_eq!((found.status, found.body), (None, "SlowDown"));
        for text in ["", "Server returned non-2xx status code: ", "x"] {
            assert!(ServerAnswer::of(text).is_none_or(|answer| answer.status.is_none()));
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            redact(&text);
            redact(&format!("https://{text}"));
            redact(&format!("Server returned non-2xx status code: {text}"));
        }

        #[test]
        fn user_info_and_query_never_survive(
            host in "[a-z]{1,9}",
            before in "[a-z /]{0,9}",
            user in "[A-Za-z0-9:%/?@]{0,9}",
            query in "[A-Za-z0-9=&@?/]{0,9}",
        ) {
            let text = format!("{before}https://{user}MARKED@{host}/k?{query}MARKED after");
            let told = redact(&text);
            prop_assert!(!told.contains("MARKED"), "{told}");
            prop_assert!(told.ends_with(" after"), "{told}");
        }
    }
}
