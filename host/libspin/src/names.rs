//! Names of contexts. They belong to users: two users may use the same name.

use spin_abi::control::ContextInfo;

use crate::error::Error;

/// The id of a context given by id or, if no context has that id, by name. Contexts of the user who asked come first. Contexts of other
/// users have names only if root asked.
pub fn find(contexts: &[ContextInfo], wanted: &str) -> Result<u32, Error> {
    if let Ok(id) = wanted.parse()
        && contexts.iter().any(|context| context.context == id)
    {
        return Ok(id);
    }
    let named = |own: bool| -> Vec<u32> {
        let is_named = |context: &&ContextInfo| context.own == own && !context.hidden && context.name == wanted;
        contexts.iter().filter(is_named).map(|context| context.context).collect()
    };
    let own = named(true);
    let ids = if own.is_empty() { named(false) } else { own };
    match ids[..] {
        [] => Err(Error::NoSuchContext(wanted.to_owned())),
        [id] => Ok(id),
        _ => Err(Error::Ambiguous { name: wanted.to_owned(), ids }),
    }
}

#[cfg(test)]
mod tests {
    use super::find;
    use crate::{ContextInfo, Error};

    fn context(id: u32, name: &str, own: bool) -> ContextInfo {
        ContextInfo { context: id, name: name.into(), own, ..ContextInfo::default() }
    }

    fn hidden(id: u32) -> ContextInfo {
        ContextInfo { context: id, hidden: true, ..ContextInfo::default() }
    }

    #[test]
    fn a_name_is_the_users_own() {
        let seen = [hidden(1), context(2, "echo", true), context(3, "5", true), hidden(5)];
        assert_eq!(find(&seen, "echo").unwrap(), 2);
        assert_eq!(find(&seen, "1").unwrap(), 1, "ids are those of all users");
        assert_eq!(find(&seen, "5").unwrap(), 5, "an id comes before a name");
        for unknown in ["", "ech", "4"] {
            assert!(matches!(find(&seen, unknown), Err(Error::NoSuchContext(_))), "{unknown:?}");
        }
    }

    #[test]
    fn roots_own_names_come_first() {
        let seen = [context(1, "echo", false), context(2, "echo", true), context(3, "echo", false)];
        assert_eq!(find(&seen, "echo").unwrap(), 2);
        let others = [context(1, "echo", false), context(3, "echo", false), context(4, "one", false)];
        assert_eq!(find(&others, "one").unwrap(), 4);
        let said = find(&others, "echo").unwrap_err().to_string();
        assert_eq!(said, "2 contexts are named \"echo\"; name one by its id (1, 3)");
    }

    #[test]
    fn a_user_with_two_contexts_of_a_name_gives_the_id() {
        let seen = [context(1, "", true), context(2, "", true), hidden(3)];
        let said = find(&seen, "").unwrap_err().to_string();
        assert!(said.ends_with("name one by its id (1, 2)"), "{said}");
    }
}
