//! Escaping, tables and the page skeleton.

use std::fmt::Write;

/// Whose a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Measured in this run, of spind.
    Ours,
    /// Measured in this run, of another program.
    Peer,
    /// Stated in a paper.
    Published,
}

impl Origin {
    /// The word in tables and captions.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Peer => "peer",
            Self::Published => "published",
        }
    }
}

/// Replaces the characters that HTML and SVG interpret.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Formats a paragraph of plain text.
#[must_use]
pub fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", escape(text))
}

/// Formats a list of plain texts.
#[must_use]
pub fn list(items: &[String]) -> String {
    let items: String = items.iter().map(|item| format!("<li>{}</li>\n", escape(item))).collect();
    format!("<ul>\n{items}</ul>\n")
}

/// Formats a section heading.
#[must_use]
pub fn heading(text: &str) -> String {
    format!("<h2>{}</h2>\n", escape(text))
}

/// Formats a heading within a section.
#[must_use]
pub fn subheading(text: &str) -> String {
    format!("<h3>{}</h3>\n", escape(text))
}

/// A table of plain texts. Each column says whose its figures are.
pub struct Table {
    caption: String,
    columns: Vec<(String, Option<Origin>)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table without rows.
    #[must_use]
    pub fn new(caption: &str, columns: &[(&str, Option<Origin>)]) -> Self {
        let columns = columns.iter().map(|(name, origin)| ((*name).to_owned(), *origin)).collect();
        Self { caption: caption.to_owned(), columns, rows: Vec::new() }
    }

    /// Adds a row with a cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Formats the table.
    #[must_use]
    pub fn html(&self) -> String {
        let mut html = format!("<table>\n<caption>{}</caption>\n<tr>", escape(&self.caption));
        for (name, origin) in &self.columns {
            let origin = origin.map_or_else(String::new, |origin| format!("<br><i>{}</i>", origin.name()));
            let _ = write!(html, "<th>{}{origin}</th>", escape(name));
        }
        html.push_str("</tr>\n");
        for row in &self.rows {
            let cells: String = row.iter().map(|cell| cell_html(cell)).collect();
            let _ = writeln!(html, "<tr>{cells}</tr>");
        }
        html.push_str("</table>\n");
        html
    }
}

/// Formats a cell: numbers are aligned to the right.
fn cell_html(cell: &str) -> String {
    let is_number = cell.parse::<f64>().is_ok();
    format!("<td{}>{}</td>", if is_number { " class=\"n\"" } else { "" }, escape(cell))
}

const STYLE: &str = "\
body{margin:24px auto;max-width:960px;padding:0 16px;background:#fff;color:#1b1f24;font:15px/1.45 system-ui,sans-serif}
h1{font-size:26px;margin:0 0 8px}
h2{font-size:20px;margin:40px 0 8px;border-bottom:2px solid #d0d7de;padding-bottom:4px}
h3{font-size:16px;margin:24px 0 6px}
p,ul{max-width:860px}
table{border-collapse:collapse;margin:10px 0 20px;font-size:13.5px;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;padding:4px 0}
th,td{border:1px solid #d0d7de;padding:3px 8px;text-align:left;vertical-align:top}
th{background:#f3f5f7}
th i{font-weight:400;color:#57606a}
td:first-child{white-space:nowrap}
td.n{text-align:right;white-space:nowrap}
svg{display:block;margin:8px 0 4px;max-width:100%;height:auto}
.missing{background:#fff4d6;padding:6px 10px}
";

/// Formats a page. `body` is HTML.
#[must_use]
pub fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{body}</body>\n</html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::{Origin, Table, escape, page, paragraph};

    #[test]
    fn names_are_escaped() {
        assert_eq!(escape("a<b> & \"c\" 'd'"), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
        assert_eq!(paragraph("<script>"), "<p>&lt;script&gt;</p>\n");
        assert!(page("<x>", "").contains("<title>&lt;x&gt;</title>"));
    }

    #[test]
    fn tables_escape_cells_and_name_origins() {
        let mut table = Table::new("<caption>", &[("<name>", None), ("ns", Some(Origin::Published))]);
        assert!(table.is_empty());
        table.row(vec!["<a>".to_owned(), "1.50".to_owned()]);
        let html = table.html();
        assert!(html.contains("<td>&lt;a&gt;</td><td class=\"n\">1.50</td>"), "{html}");
        assert!(html.contains("<th>ns<br><i>published</i></th>") && html.contains("&lt;name&gt;"), "{html}");
        assert!(!html.contains("<caption><caption>"), "{html}");
    }
}
