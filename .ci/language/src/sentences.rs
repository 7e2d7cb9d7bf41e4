//! Length of sentences.

/// Most words of a sentence.
const MOST: usize = 30;

/// A finding in a paragraph.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub rule: String,
    pub sentence: String,
}

/// Sentences of a paragraph. A full stop, a question mark or a colon ends one if a space follows.
pub fn sentences(paragraph: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut start, mut in_code) = (0, false);
    let characters: Vec<(usize, char)> = paragraph.char_indices().collect();
    for (at, &(index, c)) in characters.iter().enumerate() {
        in_code ^= c == '`';
        let next = characters.get(at + 1).map(|&(_, next)| next);
        if !in_code && ".!?:".contains(c) && next == Some(' ') {
            found.push(paragraph[start..=index].trim());
            start = index + 1;
        }
    }
    found.push(paragraph[start..].trim());
    found.retain(|sentence| !sentence.is_empty());
    found
}

/// Sentences of more than [`MOST`] words. Code counts as one word, as does the target of a link.
pub fn too_long(paragraph: &str) -> Vec<Finding> {
    let long = sentences(paragraph).into_iter().map(|sentence| (words(sentence), sentence));
    long.filter(|(words, _)| *words > MOST)
        .map(|(words, sentence)| Finding { rule: format!("{words} words"), sentence: sentence.to_owned() })
        .collect()
}

fn words(sentence: &str) -> usize {
    let plain: String =
        sentence.split('`').enumerate().map(|(at, part)| if at % 2 == 1 { "x" } else { part }).collect();
    plain.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count()
}

#[cfg(test)]
mod tests {
    use super::{sentences, too_long, words};

    #[test]
    fn code_and_numbers_do_not_end_a_sentence() {
        assert_eq!(sentences("A 1.5 of `a. b` stays. Then: c"), ["A 1.5 of `a. b` stays.", "Then:", "c"]);
        assert_eq!(words("one `two three` – four"), 3);
    }

    #[test]
    fn thirty_words_are_not_too_many() {
        let sentence = |count| format!("{}.", vec!["word"; count].join(" "));
        assert!(too_long(&sentence(30)).is_empty());
        assert_eq!(too_long(&format!("Short. {}", sentence(31)))[0].rule, "31 words");
    }
}
