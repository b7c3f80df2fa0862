//! The causes that errors keep.

use std::error::Error as StdError;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use object_store::Error as StoreError;

use super::redact::redact;

/// The cause of an error, shared by its clones.
///
/// It derefs to the cause itself, and so does the `source()` of the error that keeps it: a cause
/// can be downcast to its type.
#[derive(Clone)]
pub struct ErrorSource(Arc<dyn StdError + Send + Sync>);

impl ErrorSource {
    /// Keeps this cause.
    pub fn new(cause: impl StdError + Send + Sync + 'static) -> Self {
        Self(Arc::new(cause))
    }
}

impl Deref for ErrorSource {
    type Target = dyn StdError + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Debug for ErrorSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// What an `object_store` client reported: the cause of most
/// [`Backend`](super::RemoteStorageError::Backend) errors.
///
/// Display, `Debug` and the causes behind it are fit for logs: they leave out the user info and
/// queries of URLs and all of a response's body but its error code and message, and each cause says
/// only what the next does not. The client's error itself, with its type, is
/// [`store_error`](Self::store_error).
#[derive(Clone)]
pub struct StoreFailure {
    error: Arc<StoreError>,
    told: Arc<Told>,
}

impl StoreFailure {
    pub(super) fn new(error: StoreError) -> Self {
        Self {
            told: Arc::new(Told::by(&error)),
            error: Arc::new(error),
        }
    }

    /// The client's own error. **Not for logs**: its texts may hold credentials.
    pub fn store_error(&self) -> &StoreError {
        &self.error
    }

    /// The whole chain in one line.
    pub(super) fn line(&self) -> String {
        let mut line = self.to_string();
        for cause in causes(self).skip(1) {
            line.push_str(": ");
            line.push_str(&cause.to_string());
        }
        line
    }
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.told.fmt(f)
    }
}

impl fmt::Debug for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoreFailure").field(&self.line()).finish()
    }
}

impl StdError for StoreFailure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.told.source()
    }
}

/// One cause in a chain, as it may be told.
#[derive(Debug)]
struct Told {
    text: String,
    next: Option<Box<Self>>,
}

impl Told {
    fn by(error: &(dyn StdError + 'static)) -> Self {
        let texts: Vec<String> = causes(error).map(ToString::to_string).collect();
        let mut told: Option<Self> = None;
        for (at, text) in texts.iter().enumerate().rev() {
            let own = match texts.get(at + 1) {
                // `object_store` repeats the cause at the end of each text.
                Some(cause) => text
                    .strip_suffix(cause.as_str())
                    .map_or(text.as_str(), |own| own.trim_end_matches([' ', '-', ':'])),
                None => text,
            };
            // Nothing is left of an error that is only a wrapper.
            if !own.is_empty() {
                told = Some(Self {
                    text: redact(own),
                    next: told.map(Box::new),
                });
            }
        }
        told.unwrap_or_else(|| Self {
            text: redact(&error.to_string()),
            next: None,
        })
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for Told {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.next.as_deref().map(|next| next as _)
    }
}

/// An error and all that is behind it.
pub(super) fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |cause: &&'a (dyn StdError + 'static)| {
        (*cause).source()
    })
}
