//! Figures in documents are those of their results file, and name the command that made them.
//!
//! A table of figures stands behind a line `<!-- figures: FILE -->`. Its columns are case, variant, clusters and value; the line before it
//! names the command. FILE is JSON, as the benches write it, in the folder of the document.

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

#[test]
fn figures_are_those_of_their_results_files() {
    let (wrong, figures) = check(&root().join("docs/figures.md"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(figures > 10, "{figures}");
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
