//! Words and phrases that have plainer replacements.

use crate::sentences::{Finding, sentences};

/// Phrases, each with what to write instead.
pub struct Words {
    phrases: Vec<(String, String)>,
}

impl Words {
    /// Parses lines of the form `phrase => replacement`. A phrase that begins with `^` is refused at the start of a paragraph alone.
    pub fn parse(lines: &[String]) -> Result<Self, String> {
        let parse = |line: &String| {
            let (phrase, instead) = line.split_once("=>").ok_or_else(|| format!("words.txt: no `=>` in `{line}`"))?;
            Ok((phrase.trim().to_lowercase(), instead.trim().to_owned()))
        };
        Ok(Self { phrases: lines.iter().map(parse).collect::<Result<_, String>>()? })
    }

    /// Findings in a paragraph. Code is not looked at.
    pub fn find(&self, paragraph: &str) -> Vec<Finding> {
        let mut found = Vec::new();
        for (place, sentence) in sentences(paragraph).into_iter().enumerate() {
            let text = plain(sentence);
            // Not code, a link or a cell of a table.
            let is_sentence = sentence.starts_with(char::is_uppercase);
            for (phrase, instead) in &self.phrases {
                let is_there = match phrase.strip_prefix('^') {
                    Some(start) => place == 0 && is_sentence && text.starts_with(&format!(" {start} ")),
                    None => text.contains(&format!(" {phrase} ")),
                };
                if is_there {
                    let rule = format!("\"{}\": {instead}", phrase.trim_start_matches('^'));
                    found.push(Finding { rule, sentence: sentence.to_owned() });
                }
            }
        }
        found
    }
}

/// Words in lower case with single spaces around each, without code and punctuation.
fn plain(sentence: &str) -> String {
    let prose: String = sentence.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let words = prose.split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '-').filter(|word| !word.is_empty());
    format!(" {} ", words.collect::<Vec<_>>().join(" ").to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::Words;

    #[test]
    fn phrases_are_found_as_words_outside_of_code() {
        let words =
            Words::parse(&["in a row => in a batch".to_owned(), "^the same => say it".to_owned()]).expect("fine");
        let count = |text| words.find(text).len();
        assert_eq!(count("Tasks run in a row."), 1);
        assert_eq!(count("Tasks run `in a row` in arrows."), 0);
        assert_eq!([count("The same of others."), count("Of others. The same holds.")], [1, 0]);
        assert!(Words::parse(&["no arrow".to_owned()]).is_err());
    }
}
