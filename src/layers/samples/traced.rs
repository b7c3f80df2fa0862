//! What was traced by one thread.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// Keeps every event, and every span when it is closed, of this thread.
pub(in crate::layers) struct Traced {
    entries: Arc<Mutex<Vec<Entry>>>,
    _default: DefaultGuard,
}

/// A span that was closed, or an event.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::layers) struct Entry {
    /// The span's name, or the event's message.
    pub(in crate::layers) name: String,
    pub(in crate::layers) level: Level,
    /// The span that it happened in.
    pub(in crate::layers) parent: Option<&'static str>,
    pub(in crate::layers) fields: BTreeMap<&'static str, String>,
}

impl Traced {
    pub(in crate::layers) fn start() -> Self {
        // With a single subscriber in the process, `tracing` asks the one of the thread that
        // meets a call site first, and that thread may have none: it would never be enabled.
        static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Registry::default()));
        LazyLock::force(&ANOTHER);
        let entries = Arc::default();
        let subscriber = Registry::default().with(Keep(Arc::clone(&entries)));
        Self {
            entries,
            _default: tracing::subscriber::set_default(subscriber),
        }
    }

    pub(in crate::layers) fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut self.entries.lock())
    }
}

impl Entry {
    pub(in crate::layers) fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

struct Keep(Arc<Mutex<Vec<Entry>>>);

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Keep {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let span = context.span(id).expect("a new span");
        span.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).expect("a span");
        let mut extensions = span.extensions_mut();
        values.record(extensions.get_mut::<Fields>().expect("set when it was new"));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let name = fields.0.remove("message").unwrap_or_default();
        let parent = context.event_span(event).map(|span| span.name());
        self.keep(name, event.metadata(), parent, fields);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).expect("a span");
        let fields = span
            .extensions_mut()
            .remove::<Fields>()
            .expect("set when it was new");
        let parent = span.parent().map(|parent| parent.name());
        self.keep(span.name().to_owned(), span.metadata(), parent, fields);
    }
}

impl Keep {
    fn keep(
        &self,
        name: String,
        metadata: &'static Metadata<'static>,
        parent: Option<&'static str>,
        fields: Fields,
    ) {
        if metadata.target().starts_with("krabka_remote_storage") {
            self.0.lock().push(Entry {
                name,
                level: *metadata.level(),
                parent,
                fields: fields.0,
            });
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}
