//! The contents of an entry: a preamble, a JSON document and an image, as a message on the control socket has them, and a SHA-256
//! digest of all of it. Decoding trusts nothing, not even that spind wrote the bytes.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use spin_abi::control::{Install, Preamble, PreambleError};

/// Maximum length of the JSON document: an install request, and rules that an administrator has set, at most 64 KiB each.
const MAX_ENTRY_JSON: usize = 192 << 10;
/// Length of the digest.
const DIGEST: usize = 32;

/// A persistent context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The owner.
    pub uid: u32,
    /// Group of the process that installed the context: grants depend on it.
    pub gid: u32,
    /// The request, with the rules that the owner set last.
    pub install: Install,
    /// Rules that an administrator set for the context of another user. No policy narrows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub administrator: Option<RuleTexts>,
}

/// Rules as text, as in [`Install`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleTexts {
    /// Rules.
    pub rules: Vec<String>,
    /// End-of-message predicate.
    pub eom: Option<String>,
}

/// Reason why bytes are no entry.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// Shorter than its parts.
    #[error("it is cut short")]
    Short,
    /// Longer than its parts.
    #[error("bytes follow its end")]
    Long,
    /// Written by something else, or by another version.
    #[error(transparent)]
    Preamble(#[from] PreambleError),
    /// The document is too long.
    #[error("{0} bytes of JSON: at most {MAX_ENTRY_JSON}")]
    Json(usize),
    /// The image is longer than the machine allows.
    #[error("an image of {0} bytes: at most {1} on this machine")]
    Image(u64, u64),
    /// The bytes have changed since they were written.
    #[error("its digest differs: the file is damaged")]
    Digest,
    /// The document describes no context.
    #[error("not understood: {0}")]
    Document(#[from] serde_json::Error),
}

/// Maximum length of an entry with an image of at most `max_image` bytes.
pub const fn max_len(max_image: u64) -> u64 {
    (Preamble::LEN + MAX_ENTRY_JSON + DIGEST) as u64 + max_image
}

impl Entry {
    /// The parts of the entry before and after `image`.
    ///
    /// # Errors
    /// [`EntryError::Json`], [`EntryError::Image`].
    pub fn encode(&self, image: &[u8]) -> Result<[Vec<u8>; 2], EntryError> {
        let json = serde_json::to_vec(self)?;
        if json.len() > MAX_ENTRY_JSON {
            return Err(EntryError::Json(json.len()));
        }
        let [json_len, blob] = [json.len(), image.len()].map(|len| u32::try_from(len).unwrap_or(u32::MAX));
        let preamble = Preamble { json: json_len, blob }.encode();
        let head = [&preamble[..], &json].concat();
        let digest = digest(&head, image);
        Ok([head, digest.to_vec()])
    }

    /// Decodes an entry and its image.
    ///
    /// # Errors
    /// See [`EntryError`].
    pub fn decode(bytes: &[u8], max_image: u64) -> Result<(Self, &[u8]), EntryError> {
        let (preamble, rest) = bytes.split_first_chunk().ok_or(EntryError::Short)?;
        let Preamble { json, blob } = Preamble::decode(preamble)?;
        let [json, blob] = [json as usize, blob as usize];
        if json > MAX_ENTRY_JSON {
            return Err(EntryError::Json(json));
        }
        if blob as u64 > max_image {
            return Err(EntryError::Image(blob as u64, max_image));
        }
        let (document, rest) = rest.split_at_checked(json).ok_or(EntryError::Short)?;
        let (image, written) = rest.split_at_checked(blob).ok_or(EntryError::Short)?;
        if written.len() != DIGEST {
            return Err(if written.len() < DIGEST { EntryError::Short } else { EntryError::Long });
        }
        if written != digest(&bytes[..Preamble::LEN + json], image) {
            return Err(EntryError::Digest);
        }
        Ok((serde_json::from_slice(document)?, image))
    }

    /// Sets rules that `uid` chose.
    pub fn set_rules(&mut self, uid: u32, texts: RuleTexts) {
        if uid == self.uid {
            (self.install.rules, self.install.eom, self.administrator) = (texts.rules, texts.eom, None);
        } else {
            self.administrator = Some(texts);
        }
    }
}

fn digest(head: &[u8], image: &[u8]) -> [u8; DIGEST] {
    Sha256::new().chain_update(head).chain_update(image).finalize().into()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq};
    use proptest::proptest;
    use proptest::sample::Index;
    use spin_abi::control::{Install, Lifetime, Preamble};

    use super::{Entry, EntryError, MAX_ENTRY_JSON, RuleTexts, max_len};

    const MAX_IMAGE: u64 = 4096;

    fn entry(rule: &str) -> Entry {
        let install = Install { rules: vec![rule.to_owned()], lifetime: Lifetime::Persistent, ..Install::default() };
        Entry { uid: 7, gid: 8, install, administrator: None }
    }

    fn encoded(entry: &Entry, image: &[u8]) -> Vec<u8> {
        let [head, tail] = entry.encode(image).expect("it is short");
        [&head, image, &tail].concat()
    }

    #[test]
    fn an_entry_within_its_limits_comes_back_and_others_are_refused() {
        let image = [3; MAX_IMAGE as usize];
        let bytes = encoded(&entry("udp"), &image);
        assert!(bytes.len() as u64 <= max_len(MAX_IMAGE));
        assert_eq!(Entry::decode(&bytes, MAX_IMAGE).expect("it fits"), (entry("udp"), &image[..]));
        assert!(matches!(Entry::decode(&bytes, MAX_IMAGE - 1), Err(EntryError::Image(4096, 4095))));
        let long = entry(&"x".repeat(MAX_ENTRY_JSON));
        assert!(matches!(long.encode(&[]), Err(EntryError::Json(_))));
        let document = vec![b' '; MAX_ENTRY_JSON + 1];
        let preamble = Preamble { json: document.len() as u32, blob: 0 }.encode();
        assert!(matches!(Entry::decode(&[&preamble[..], &document].concat(), 0), Err(EntryError::Json(_))));
        // The digest is right, and the document is another program's.
        let foreign = Preamble { json: 2, blob: 0 }.encode();
        let head = [&foreign[..], b"{}"].concat();
        let whole = [&head[..], &super::digest(&head, &[])].concat();
        assert!(matches!(Entry::decode(&whole, 0), Err(EntryError::Document(_))));
    }

    #[test]
    fn rules_of_an_administrator_are_kept_apart_until_the_owner_sets_others() {
        let texts = |rule: &str| RuleTexts { rules: vec![rule.to_owned()], eom: Some("never".to_owned()) };
        let mut of_user = entry("udp");
        of_user.set_rules(0, texts("tcp"));
        assert_eq!((&of_user.install.rules[0][..], &of_user.administrator), ("udp", &Some(texts("tcp"))));
        of_user.set_rules(7, texts("icmp"));
        assert_eq!((&of_user.install.rules[0][..], of_user.install.eom.as_deref()), ("icmp", Some("never")));
        assert_eq!(of_user.administrator, None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_is_written_comes_back(rule in ".{0,200}", image in vec(any::<u8>(), 0..MAX_IMAGE as usize)) {
            let bytes = encoded(&entry(&rule), &image);
            prop_assert_eq!(Entry::decode(&bytes, MAX_IMAGE).expect("valid"), (entry(&rule), &image[..]));
        }

        #[test]
        fn random_bytes_are_no_entry(bytes in vec(any::<u8>(), 0..300), json in 0..100_u32, blob in 0..100_u32) {
            prop_assert!(Entry::decode(&bytes, MAX_IMAGE).is_err());
            let preamble = Preamble { json, blob }.encode();
            prop_assert!(Entry::decode(&[&preamble[..], &bytes].concat(), MAX_IMAGE).is_err());
        }

        #[test]
        fn a_changed_entry_is_refused(image in vec(any::<u8>(), 0..99), bit in any::<Index>(), end in any::<Index>(), more in vec(any::<u8>(), 1..40)) {
            let bytes = encoded(&entry("udp dport 9"), &image);
            let mut flipped = bytes.clone();
            let bit = bit.index(8 * bytes.len());
            flipped[bit / 8] ^= 1 << (bit % 8);
            // Two bytes of the preamble mean nothing, and the digest covers them.
            prop_assert!(Entry::decode(&flipped, MAX_IMAGE).is_err(), "bit {}", bit);
            prop_assert!(Entry::decode(&bytes[..end.index(bytes.len())], MAX_IMAGE).is_err());
            prop_assert!(Entry::decode(&[&bytes[..], &more].concat(), MAX_IMAGE).is_err());
        }
    }
}
