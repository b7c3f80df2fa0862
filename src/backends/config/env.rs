//! The environment variables that a store's configuration is read from.

use std::collections::BTreeMap;

/// Names and values, in the order of the names. A variable that is set to nothing counts as unset.
#[derive(Clone, Default)]
pub(crate) struct Environment {
    #[cfg_attr(not(feature = "_http"), expect(dead_code))]
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// Those of this process. What is not UTF-8 is left out.
    pub(crate) fn of_process() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    /// The value of one variable.
    #[cfg(any(feature = "gcp", feature = "azure"))]
    pub(in crate::backends) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Those that begin with `prefix`, with what an `object_store` builder calls them: the name in
    /// small letters.
    #[cfg(feature = "_http")]
    pub(in crate::backends) fn settings<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (String, &'a str)> {
        self.variables
            .iter()
            .filter(move |(name, _)| name.starts_with(prefix))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.as_str()))
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let variables = variables
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .filter(|(_, value): &(String, String)| !value.is_empty())
            .collect();
        Self { variables }
    }
}
