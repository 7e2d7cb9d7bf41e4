//! Figures in documents are those of their results file, and name the command that made them.
//!
//! A table of figures stands behind a line `<!-- figures: FILE -->`. Its columns are case, variant, clusters and value; the line before it
//! names the command. FILE is JSON, as the benches write it, in the folder of the document.
//!
//! Ratios of medians stand with `<!-- ratios: FILE VARIANT... / BASE at SIZE -->`. Either a table follows the comment, with a handler in the
//! first column and a variant's ratio in each other one. Or the comment ends a line with the least and the greatest ratio of a variant.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// The medians of a results file, to one decimal, by case, variant and clusters.
fn results(path: &Path) -> HashMap<[String; 3], String> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let rows: Vec<serde_json::Value> = serde_json::from_str(&text).expect("rows");
    let row = |row: &serde_json::Value| {
        let text = |key: &str| row[key].as_str().expect("text").to_owned();
        let median = row["median"].as_f64().expect("a number");
        ([text("case"), text("variant"), row["clusters"].to_string()], format!("{median:.1}"))
    };
    rows.iter().map(row).collect()
}

/// What is wrong with the tables of a document, and how many figures there are.
fn check(document: &Path) -> (Vec<String>, usize) {
    let text = fs::read_to_string(document).expect("a document");
    let (mut wrong, mut figures) = (Vec::new(), 0);
    for table in text.split("<!-- figures: ").skip(1) {
        let file = table.split(" -->").next().expect("a name");
        let results = results(&document.with_file_name(file));
        for row in
            table.lines().skip_while(|line| !line.starts_with("|---")).skip(1).take_while(|line| line.starts_with('|'))
        {
            let cells: Vec<_> = row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
            let [case, variant, clusters, value] = cells.try_into().expect("four columns");
            figures += 1;
            let measured = results.get(&[case, variant, clusters]);
            if measured != Some(&value) {
                wrong.push(format!("{row} {file} has {measured:?}"));
            }
        }
    }
    (wrong, figures)
}

/// The ratios of variants to a base, by handler, for packets of one size.
struct Ratios {
    file: String,
    variants: Vec<String>,
    of: HashMap<String, Vec<f64>>,
}

impl Ratios {
    /// Reads those that a comment names.
    fn read(document: &Path, comment: &str) -> Self {
        let (words, size) = comment.split_once(" at ").expect("a size");
        let (words, base) = words.split_once(" / ").expect("a base");
        let mut words = words.split(' ').map(str::to_owned);
        let (file, variants): (_, Vec<_>) = (words.next().expect("a file"), words.collect());
        let path = document.with_file_name(&file);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let rows: Vec<serde_json::Value> = serde_json::from_str(&text).expect("rows");
        let median = |case: &str, variant: &str| {
            let row = rows.iter().find(|row| row["case"] == case && row["variant"] == variant);
            row.and_then(|row| row["median"].as_f64()).unwrap_or_else(|| panic!("{file} has no {case} {variant}"))
        };
        let cases = rows.iter().filter(|row| row["variant"] == base).filter_map(|row| row["case"].as_str());
        let handlers = cases.filter_map(|case| Some((case, case.strip_suffix(size)?.strip_suffix('/')?)));
        let ratio = |case: &str, variant: &String| median(case, variant) / median(case, base);
        let of = handlers.map(|(case, handler)| {
            (handler.to_owned(), variants.iter().map(|variant| ratio(case, variant)).collect::<Vec<_>>())
        });
        Self { of: of.collect(), file, variants }
    }

    /// What is wrong with a row of a table.
    fn check_row(&self, row: &str) -> Option<String> {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let measured = self.of.get(cells.next()?).into_iter().flatten().copied();
        let cells: Vec<_> = cells.collect();
        let expected: Vec<_> = measured.zip(&cells).map(|(ratio, cell)| with_decimals_of(cell, ratio)).collect();
        (expected != cells).then(|| format!("{row} {} has {expected:?}", self.file))
    }

    /// What is wrong with the range at the end of a line.
    fn check_range(&self, line: &str) -> Option<String> {
        let numbers: Vec<_> = line.split(' ').filter(|word| word.parse::<f64>().is_ok()).collect();
        let range = numbers[numbers.len().checked_sub(2).expect("two numbers")..].to_vec();
        assert_eq!(self.variants.len(), 1, "{line}");
        let all = || self.of.values().map(|ratios| ratios[0]);
        let ends = [all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max)];
        let expected: Vec<_> = range.iter().zip(ends).map(|(text, end)| with_decimals_of(text, end)).collect();
        (expected != range).then(|| format!("{line} {} has {expected:?}", self.file))
    }
}

/// A number with as many decimals as `text` has.
fn with_decimals_of(text: &str, number: f64) -> String {
    let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    format!("{number:.decimals$}")
}

/// What is wrong with the ratios of a document, and how many there are.
fn check_ratios(document: &Path) -> (Vec<String>, usize) {
    let text = fs::read_to_string(document).expect("a document");
    let (mut wrong, mut ratios) = (Vec::new(), 0);
    for (at, _) in text.match_indices("<!-- ratios: ") {
        let (comment, behind) =
            text[at..].strip_prefix("<!-- ratios: ").and_then(|text| text.split_once(" -->")).expect("its end");
        let known = Ratios::read(document, comment);
        let before = text[..at].lines().last().filter(|_| !text[..at].ends_with('\n')).unwrap_or_default();
        if before.is_empty() {
            let rows = behind.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
            for row in rows.take_while(|line| line.starts_with('|')) {
                wrong.extend(known.check_row(row));
                ratios += known.variants.len();
            }
        } else {
            wrong.extend(known.check_range(before));
            ratios += 1;
        }
    }
    (wrong, ratios)
}

#[test]
fn figures_are_those_of_their_results_files() {
    let (wrong, figures) = check(&root().join("docs/figures.md"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(figures > 10, "{figures}");
    for (document, least) in [("README.md", 3), ("handlers/GUIDE.md", 15)] {
        let (wrong, ratios) = check_ratios(&root().join(document));
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(ratios >= least, "{document}: {ratios}");
    }
}

#[test]
fn a_ratio_that_differs_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let document = folder.path().join("a.md");
    let row = |case: &str, variant: &str, median: f64| {
        format!(r#"{{"case": "{case}", "variant": "{variant}", "median": {median}}}"#)
    };
    let rows = [
        row("a/64", "v", 3.0),
        row("a/64", "base", 2.0),
        row("b/64", "v", 5.0),
        row("b/64", "base", 1.0),
        row("b/9", "base", 1.0),
    ];
    fs::write(folder.path().join("a.json"), format!("[{}]", rows.join(","))).expect("room");
    for (text, wrong) in [
        ("1.5 to 5.0 times <!-- ratios: a.json v / base at 64 -->", 0),
        ("9 1.5 to 5 times <!-- ratios: a.json v / base at 64 -->", 0),
        ("1.5 to 5.1 times <!-- ratios: a.json v / base at 64 -->", 1),
        ("1.4 to 5.0 times <!-- ratios: a.json v / base at 64 -->", 1),
        ("<!-- ratios: a.json v / base at 64 -->\n| handler | v |\n|---|---|\n| a | 1.5 |\n| b | 5 |\n", 0),
        ("<!-- ratios: a.json v / base at 64 -->\n| handler | v |\n|---|---|\n| a | 1.6 |\n| c | 5 |\n", 2),
    ] {
        fs::write(&document, text).expect("room");
        assert_eq!(check_ratios(&document).0.len(), wrong, "{text}");
    }
}

#[test]
fn a_figure_that_differs_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let document = folder.path().join("a.md");
    let rows = r#"[{"case": "a/64", "variant": "v", "median": 12.34, "clusters": 1}]"#;
    fs::write(folder.path().join("a.json"), rows).expect("room");
    let table = |value: &str| {
        format!(
            "<!-- figures: a.json -->\n| case | variant | clusters | ns |\n|---|---|---|---|\n| a/64 | v | 1 | {value} |\n"
        )
    };
    for (value, count) in [("12.3", 0), ("12.4", 1)] {
        fs::write(&document, table(value)).expect("room");
        assert_eq!((check(&document).0.len(), check(&document).1), (count, 1));
    }
}
