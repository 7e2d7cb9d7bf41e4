//! Identifiers that have plainer replacements.

use std::collections::BTreeMap;
use std::str::FromStr;

use proc_macro2::{TokenStream, TokenTree};

/// Identifiers, each with the name to use instead.
pub struct Names {
    replaced: BTreeMap<String, String>,
}

impl Names {
    /// Parses lines of the form `name => replacement`.
    pub fn parse(lines: &[String]) -> Result<Self, String> {
        let parse = |line: &String| {
            let (name, instead) = line.split_once("=>").ok_or_else(|| format!("names.txt: no `=>` in `{line}`"))?;
            Ok((name.trim().to_owned(), instead.trim().to_owned()))
        };
        Ok(Self { replaced: lines.iter().map(parse).collect::<Result<_, String>>()? })
    }

    /// Lines with replaced names, and what is wrong there.
    pub fn find(&self, source: &str) -> Vec<(usize, String)> {
        let Ok(tokens) = TokenStream::from_str(source) else { return Vec::new() };
        let mut found = Vec::new();
        self.walk(tokens, &mut found);
        found
    }

    fn walk(&self, tokens: TokenStream, found: &mut Vec<(usize, String)>) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.walk(group.stream(), found),
                TokenTree::Ident(name) => {
                    if let Some(instead) = self.replaced.get(&name.to_string()) {
                        found.push((name.span().start().line, format!("name `{name}`: use `{instead}`")));
                    }
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn names_are_found_in_code_and_not_in_text() {
        let names = Names::parse(&["Toll => PassCost".to_owned()]).expect("fine");
        let source = "// Toll\nfn a() {\n    let b = Toll(\"Toll\");\n}\n";
        assert_eq!(names.find(source), [(3, "name `Toll`: use `PassCost`".to_owned())]);
    }
}
