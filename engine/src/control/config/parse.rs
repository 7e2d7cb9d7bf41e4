//! Reads the configuration file. Finds all its errors, not only the first: each key is tried on its own.

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer, Error};

use super::error::{ConfigError, ConfigErrors};
use super::file::File;

impl File {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError::Read`](super::ConfigError::Read), or a [`ConfigError::Parse`](super::ConfigError::Parse) for each line that is wrong.
    pub fn read(path: &Path) -> Result<Self, ConfigErrors> {
        let file = Some(path.to_owned());
        let read = std::fs::read_to_string(path).map_err(|error| vec![error.into()]);
        match read.and_then(|text| parse(&text)) {
            Ok(read) => Ok(Self { path: file, ..read }),
            Err(errors) => Err(ConfigErrors { file, errors }),
        }
    }
}

/// Parses the text of a file.
///
/// # Errors
/// A [`ConfigError::Parse`] for each line that is wrong.
fn parse(text: &str) -> Result<File, Vec<ConfigError>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(errors.into_iter().map(|error| Keys::new(text).error("", &error, 0..0)).collect());
    }
    File::deserialize(Deserializer::from(table.clone())).map_err(|error| {
        let mut keys = Keys::new(text);
        keys.try_each(&table, &|part| part);
        if keys.errors.is_empty() {
            keys.errors.push(keys.error("", &error, table.span()));
        }
        keys.errors.sort_by_key(|error| if let ConfigError::Parse { line, .. } = error { *line } else { 0 });
        keys.errors
    })
}

/// Tries the keys of a file, each without the others.
struct Keys<'t> {
    text: &'t str,
    /// Keys of the tables around, each with a point behind it.
    path: String,
    errors: Vec<ConfigError>,
}

/// A file that contains nothing but a part of a table.
type Around<'a, 'i> = &'a dyn Fn(DeTable<'i>) -> DeTable<'i>;

impl<'t> Keys<'t> {
    const fn new(text: &'t str) -> Self {
        Self { text, path: String::new(), errors: Vec::new() }
    }

    /// Tries each key of a table. `around` adds the tables that the table lies in.
    fn try_each<'i>(&mut self, table: &Spanned<DeTable<'i>>, around: Around<'_, 'i>) {
        for (key, value) in table.get_ref() {
            let alone = |value: DeValue<'i>, span| {
                // A context without its image is refused for that, whatever else is wrong.
                let image = table.get_ref().iter().filter(|(key, _)| key.get_ref() == "image");
                let mut part: DeTable<'_> = image.map(|(key, image)| (key.clone(), image.clone())).collect();
                part.insert(key.clone(), Spanned::new(span, value));
                around(part)
            };
            let file = Spanned::new(0..self.text.len(), alone(value.get_ref().clone(), value.span()));
            let Err(error) = File::deserialize(Deserializer::from(file)) else { continue };
            let before = (self.path.len(), self.errors.len());
            self.path += key.get_ref();
            match value.get_ref() {
                DeValue::Table(inner) => {
                    self.path += ".";
                    let inner = Spanned::new(value.span(), inner.clone());
                    self.try_each(&inner, &|part| alone(DeValue::Table(part), value.span()));
                }
                DeValue::Array(list) => self.try_elements(list, &|list| alone(DeValue::Array(list), value.span())),
                _ => {}
            }
            if self.errors.len() == before.1 {
                let path = self.path.trim_end_matches('.').to_owned();
                self.errors.push(self.error(&path, &error, key.span()));
            }
            self.path.truncate(before.0);
        }
    }

    /// Tries the tables of a list, such as the contexts, each without the others.
    fn try_elements<'i>(&mut self, list: &DeArray<'i>, around: &dyn Fn(DeArray<'i>) -> DeTable<'i>) {
        for (index, element) in list.iter().enumerate() {
            let DeValue::Table(table) = element.get_ref() else { continue };
            let alone = |part: DeTable<'i>| {
                let mut only = DeArray::new();
                only.push(Spanned::new(element.span(), DeValue::Table(part)));
                around(only)
            };
            let before = (self.path.len(), self.errors.len());
            self.path += &format!(" {}, ", index + 1);
            let file = Spanned::new(0..self.text.len(), alone(table.clone()));
            if let Err(error) = File::deserialize(Deserializer::from(file)) {
                // Without an image, each key is refused for that.
                if table.iter().any(|(key, _)| key.get_ref() == "image") {
                    self.try_each(&Spanned::new(element.span(), table.clone()), &alone);
                }
                if self.errors.len() == before.1 {
                    let path = self.path.trim_end_matches(", ").to_owned();
                    self.errors.push(self.error(&path, &error, element.span()));
                }
            }
            self.path.truncate(before.0);
        }
    }

    /// An error of the key `path`, which stands at `span`.
    fn error(&self, path: &str, error: &Error, span: Range<usize>) -> ConfigError {
        let at = if path.is_empty() { error.span().unwrap_or(span) } else { span }.start;
        let line = 1 + self.text.bytes().take(at).filter(|&byte| byte == b'\n').count();
        let key = if path.is_empty() { String::new() } else { format!("{path}: ") };
        // The errors of a context have further lines, which name the key.
        ConfigError::Parse { line, key, message: error.message().lines().next().unwrap_or_default().to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn errors(text: &str) -> Vec<String> {
        parse(text).expect_err("wrong").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_wrong_key_is_named_with_its_line() {
        let text = "ifacce = 'eth0'\nidle = 'soon'\n[limits]\ncontext = 3\nconnections = 'x'\nhost_mem = '1Q'\n\
                    [policy.user.alice]\nports = 7\n[[context]]\nimage = 'a'\nrules = 'udp'\nisolatoin = 'message'\n\
                    [[context]]\nrules = ['udp']\n[[context]]\nimage = 'a'\nrules = ['udp']\nchecks = 'none'\n";
        let found = errors(text);
        let expected = [
            ["line 1: ifacce: ", "unknown field `ifacce`, expected one of `iface`"],
            ["line 2: idle: ", "unknown variant `soon`, expected one of `spin`"],
            ["line 4: limits.context: ", "unknown field `context`, expected one of `contexts`"],
            ["line 5: limits.connections: ", "expected usize"],
            ["line 6: limits.host_mem: ", "1Q"],
            ["line 8: policy.user.alice.ports: ", "expected a sequence"],
            ["line 11: context 1, rules: ", "expected a sequence"],
            ["line 12: context 1, isolatoin: ", "unknown field `isolatoin`, expected one of `name`"],
            ["line 13: context 2: ", "missing field `image`"],
            ["line 18: context 3, checks: ", "page"],
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for [place, what] in expected {
            assert!(
                found.iter().any(|error| error.starts_with(place) && error.contains(what)),
                "{place}{what}: {found:#?}"
            );
        }
    }

    #[test]
    fn all_errors_of_syntax_are_named_with_their_lines() {
        let found = errors("iface = \n[limits]\ncontexts = = 3\nhers 5\n");
        let lines: Vec<_> = found.iter().filter_map(|error| error.split(':').next()).collect();
        assert!(["line 1", "line 3", "line 4"].iter().all(|line| lines.contains(line)), "{found:#?}");
    }
}
