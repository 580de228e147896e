//! What each experiment is, without a machine: a folder each, and the table of all.

pub mod column;
pub mod columns;
pub mod connect;
pub mod figures;
pub mod http;
pub mod keepalive;
pub mod names;
pub mod option;
pub mod spec;

use self::spec::Spec;

/// Every experiment, in alphabetical order.
pub const ALL: &[&Spec] = &[&connect::SPEC, &http::SPEC, &keepalive::SPEC];

/// The experiment of this name.
///
/// None: this build does not know it; a newer one may have made the record.
pub fn find(name: &str) -> Option<&'static Spec> {
    ALL.iter().copied().find(|spec| spec.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_unique_and_typeable_and_questions_are_questions() {
        assert!(ALL.windows(2).all(|pair| pair[0].name < pair[1].name));
        for spec in ALL {
            let name = spec.name;
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{name}");
            assert!(spec.question.ends_with('?'), "{name}");
            assert!(spec.metrics.windows(2).all(|pair| pair[0].name < pair[1].name), "{name}");
            assert!(spec.histograms.windows(2).all(|p| p[0].name < p[1].name), "{name}");
        }
    }
}
