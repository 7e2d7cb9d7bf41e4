//! Paragraphs of prose: of a Markdown document, or of a Rust file's doc comments.

/// Text that belongs together, on one line.
#[derive(Debug, PartialEq, Eq)]
pub struct Paragraph {
    /// Line at which it begins.
    pub line: usize,
    pub text: String,
}

/// Collects lines to paragraphs.
#[derive(Default)]
struct Collector {
    paragraphs: Vec<Paragraph>,
    open: Option<Paragraph>,
    /// Within a fenced block.
    fenced: bool,
}

impl Collector {
    fn end(&mut self) {
        self.paragraphs.extend(self.open.take());
    }

    /// Adds a line of Markdown.
    fn add(&mut self, line: usize, text: &str) {
        let text = text.trim();
        if text.starts_with("```") {
            self.end();
            self.fenced = !self.fenced;
        } else if self.fenced {
        } else if text.is_empty() || text.starts_with('#') {
            self.end();
        } else if let Some(row) = text.strip_prefix('|') {
            self.end();
            let cells = row.split('|').map(str::trim).filter(|cell| !cell.is_empty());
            self.paragraphs.extend(cells.map(|cell| Paragraph { line, text: cell.to_owned() }));
        } else if let Some(item) = list_item(text) {
            self.end();
            self.open = Some(Paragraph { line, text: item.to_owned() });
        } else if let Some(Paragraph { text: before, .. }) = &mut self.open {
            before.push(' ');
            before.push_str(text);
        } else {
            self.open = Some(Paragraph { line, text: text.to_owned() });
        }
    }
}

/// The text of a list item.
fn list_item(text: &str) -> Option<&str> {
    let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = (number.len() < text.len()).then(|| number.strip_prefix(". ")).flatten();
    text.strip_prefix("- ").or_else(|| text.strip_prefix("* ")).or(numbered)
}

/// Paragraphs of a Markdown document.
pub fn markdown(document: &str) -> Vec<Paragraph> {
    let mut collector = Collector::default();
    for (line, text) in (1..).zip(document.lines()) {
        collector.add(line, text);
    }
    collector.end();
    collector.paragraphs
}

/// Paragraphs of doc comments.
pub fn rust(source: &str) -> Vec<Paragraph> {
    let (mut all, mut collector) = (Vec::new(), Collector::default());
    for (line, text) in (1..).zip(source.lines()) {
        let text = text.trim_start();
        if let Some(module) = text.strip_prefix("//!") {
            collector.add(line, module);
        } else if let Some(item) = text.strip_prefix("///") {
            collector.add(line, item);
        } else if !text.starts_with("#[") {
            collector.end();
            let Collector { paragraphs, .. } = std::mem::take(&mut collector);
            all.extend(paragraphs);
        }
    }
    collector.end();
    all.extend(collector.paragraphs);
    all
}

#[cfg(test)]
mod tests {
    use super::{Paragraph, markdown, rust};

    fn texts(paragraphs: &[Paragraph]) -> Vec<(usize, &str)> {
        paragraphs.iter().map(|paragraph| (paragraph.line, paragraph.text.as_str())).collect()
    }

    #[test]
    fn lines_join_and_items_cells_and_code_do_not() {
        let document = "# Title\nOne\ntwo.\n\n- three\n  four\n1. five\n```\ncode\n```\n| six | seven |\n|---|---|\n";
        let found = markdown(document);
        assert_eq!(
            texts(&found),
            [(2, "One two."), (5, "three four"), (7, "five"), (11, "six"), (11, "seven"), (12, "---"), (12, "---")]
        );
    }

    #[test]
    fn doc_comments_of_public_items_alone() {
        let source = "//! Module.\n\n/// Public.\n#[inline]\npub fn a() {}\n/// Private.\nfn b() {}\n// Other.\n";
        assert_eq!(texts(&rust(source)), [(1, "Module."), (3, "Public."), (6, "Private.")]);
    }
}
