//! A target gave nothing: why, and what to do about it.

use std::collections::BTreeMap;

/// What was tried without success.
pub(crate) struct Unreached<'a> {
    /// The option with the target, as typed: `--to HOST:PORT`.
    pub(crate) subject: String,
    /// What should have begun: `connection`.
    pub(crate) operation: &'static str,
    /// What failed: `no connection could be opened`.
    pub(crate) outcome: String,
    /// Failures by class.
    pub(crate) errors: &'a BTreeMap<String, u64>,
    /// The first error of each class, in words.
    pub(crate) first_errors: &'a BTreeMap<String, String>,
}

impl Unreached<'_> {
    /// One sentence with the most frequent failure. `own` has the advice on classes that mean
    /// something of their own to the experiment.
    pub(crate) fn sentence(&self, own: &[(&str, &str)]) -> String {
        let Self { subject, operation, outcome, errors, first_errors } = self;
        let Some((class, _)) = errors.iter().max_by_key(|(_, count)| **count) else {
            return format!("{subject}: no {operation} was started");
        };
        let words = first_errors.get(class).map_or("", String::as_str);
        let advice = own.iter().find(|(known, _)| known == class).map(|(_, advice)| *advice);
        let advice = advice.or(match class.as_str() {
            "connect-refused" => Some("nothing listens there: check the port, or start the server"),
            "connect-timeout" => Some(NO_ANSWER),
            "unreachable" => Some("there is no route to it: check the address"),
            "local-fds" => Some("raise the limit of open files: ulimit -n"),
            _ => None,
        });
        match advice {
            Some(advice) => format!("{subject}: {outcome} ({class}: {words}): {advice}"),
            None => format!("{subject}: {outcome} ({class}: {words})"),
        }
    }
}

/// Advice where a target does not answer at all.
pub(crate) const NO_ANSWER: &str = "nothing answers there: check address and firewall, or its accept queue is full (`ss -lnt`); or raise --timeout";

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(classes: &[(&str, u64)], own: &[(&str, &str)]) -> String {
        let errors = classes.iter().map(|(class, count)| ((*class).to_owned(), *count)).collect();
        let first_errors = [("connect-refused".to_owned(), "Connection refused".to_owned())].into();
        Unreached {
            subject: "--to db.example:1".to_owned(),
            operation: "connection",
            outcome: "no connection could be opened".to_owned(),
            errors: &errors,
            first_errors: &first_errors,
        }
        .sentence(own)
    }

    #[test]
    fn the_most_frequent_failure_is_named_with_its_words_and_what_to_do() {
        assert_eq!(
            sentence(&[("connect-refused", 2), ("unreachable", 1)], &[]),
            "--to db.example:1: no connection could be opened (connect-refused: Connection refused): \
             nothing listens there: check the port, or start the server"
        );
        let own = [("unreachable", "look here")];
        assert!(sentence(&[("unreachable", 1)], &own).ends_with("(unreachable: ): look here"));
        assert_eq!(sentence(&[], &own), "--to db.example:1: no connection was started");
    }
}
