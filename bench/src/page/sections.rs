//! The page of all sections, and the summary.

use super::html::page;
use super::source::Inputs;
use super::{budget, comparison, engine, handlers, head, wire};

/// Title of the page.
const TITLE: &str = "spind: results of the benches";

/// Formats the page. The sections of missing files are left out.
#[must_use]
pub fn render(inputs: &Inputs) -> String {
    let mut body = head::head(inputs);
    if let Some(results) = inputs.wire.get() {
        body.push_str(&wire::section(results));
    }
    if let Some(rows) = inputs.engine.get() {
        body.push_str(&engine::section(rows));
    }
    if let Some(rows) = inputs.handlers.get() {
        body.push_str(&handlers::section(rows));
        body.push_str(&budget::section(rows));
    }
    body.push_str(&comparison::section(inputs));
    page(TITLE, &body)
}

/// Lines for the standard output: the ratios of the wire, and what is missing.
#[must_use]
pub fn summary(inputs: &Inputs) -> Vec<String> {
    let mut lines = inputs.wire.get().map(wire::ratios).unwrap_or_default();
    if let Some(rows) = inputs.engine.get() {
        lines.push(format!("engine in memory: {} rows", rows.len()));
    }
    if let Some(rows) = inputs.handlers.get() {
        lines.push(format!("handlers: {} rows", rows.len()));
    }
    lines.extend(inputs.missing());
    lines
}

#[cfg(test)]
mod tests {
    use super::{render, summary};
    use crate::page::source::tests::{nothing, row};
    use crate::page::wire::tests::{results, series};

    #[test]
    fn a_page_needs_no_other_file_and_no_script() {
        let mut inputs = nothing();
        inputs.wire.content = Ok(results(vec![series("<script>", "round trip, 64 B", &[5.0])]));
        inputs.engine.content = Ok(vec![row("empty/64", "run-to-completion", Some(1), [25.0; 3])]);
        inputs.handlers.content = Ok(vec![row("reduce/1024", "jit-page", None, [81.0; 3])]);
        let page = render(&inputs);
        for outside in ["http", "<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
        for text in ["P &lt;1&gt;", "<svg", "Budget", "Published figures", "Engine", "Handlers", "abc"] {
            assert!(page.contains(text), "{text}");
        }
        assert!(!page.contains("left out") && !page.contains("NaN"), "{page}");
    }

    #[test]
    fn missing_files_are_stated() {
        let inputs = nothing();
        let (page, lines) = (render(&inputs), summary(&inputs));
        for path in ["/absent/wire", "/absent/engine", "/absent/handlers"] {
            assert!(page.contains(&format!("{path}: No such file")), "{page}");
            assert!(
                lines.iter().any(|line| line.starts_with(path) && line.ends_with("the section is left out")),
                "{lines:?}"
            );
        }
        assert!(!page.contains("Budget: cores"), "{page}");
    }
}
