//! What are the rows of a table called? By their arms' names; factors that all of them have stand once,
//! in the heading: `link` over `metro` and `transatlantic`.

use tcptoll_core::record::Arm;

use crate::clean;
use crate::layout::{Align, Column};

/// Heading of names.
const ARM: &str = "arm";

/// Columns that any heading may take.
const NAME: usize = 16;

/// Names of arms, as a column shows them.
#[derive(Clone, Debug)]
pub(super) struct Names {
    head: String,
    cells: Vec<String>,
}

impl Names {
    /// Of the arms of a table.
    pub(super) fn from_arms(arms: &[&Arm]) -> Self {
        by_factor(arms).unwrap_or_else(|| Self::whole(arms, ARM))
    }

    /// Whole names of arms, under a heading of the experiment's.
    pub(super) fn whole(arms: &[&Arm], head: &str) -> Self {
        let cells = arms.iter().map(|arm| arm.name.clone()).collect();
        Self { head: head.to_owned(), cells }
    }

    /// The column, its cells in at most `width` columns each.
    pub(super) fn column(&self, width: usize) -> Column {
        let cells: Vec<&str> = self.cells.iter().map(String::as_str).collect();
        let cells = clean::shorten_all(&cells, width);
        let widest = cells.iter().map(|cell| clean::columns(cell)).max().unwrap_or(0);
        let head = clean::shorten(&self.head, width.max(widest).max(NAME));
        Column::new(&head, Align::Left, cells)
    }
}

/// Names without the factors that all of them have at the same place. None: there is none.
fn by_factor(arms: &[&Arm]) -> Option<Names> {
    let parts: Vec<Vec<&str>> = arms.iter().map(|arm| arm.name.split(", ").collect()).collect();
    let [first, rest @ ..] = parts.as_slice() else { return None };
    if rest.is_empty() || rest.iter().any(|one| one.len() != first.len()) {
        return None;
    }
    let factors: Vec<Option<&str>> = (0..first.len())
        .map(|at| {
            let (factor, _) = first[at].split_once(' ')?;
            let is_of = |(arm, parts): (&&Arm, &Vec<&str>)| {
                let level = parts[at].strip_prefix(factor).and_then(|rest| rest.strip_prefix(' '));
                level.is_some() && arm.factors.contains_key(factor)
            };
            arms.iter().zip(&parts).all(is_of).then_some(factor)
        })
        .collect();
    factors.iter().any(Option::is_some).then_some(())?;
    let mut heads: Vec<&str> = factors.iter().map(|factor| factor.unwrap_or(ARM)).collect();
    heads.dedup();
    let cell = |parts: &Vec<&str>| -> String {
        let levels = parts.iter().zip(&factors).map(|(&part, factor)| match factor {
            Some(factor) => &part[factor.len() + 1..],
            None => part,
        });
        levels.collect::<Vec<_>>().join(", ")
    };
    Some(Names { head: heads.join(", "), cells: parts.iter().map(cell).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str], factors: &[&str]) -> Names {
        let arms: Vec<Arm> = names
            .iter()
            .map(|name| {
                let factors = factors.iter().map(|factor| ((*factor).to_owned(), 1.into()));
                Arm { name: (*name).into(), factors: factors.collect(), ..Arm::default() }
            })
            .collect();
        Names::from_arms(&arms.iter().collect::<Vec<_>>())
    }

    #[test]
    fn factors_of_all_arms_stand_once_in_the_heading() {
        let names = named(&["message 1, nagle on", "message 64, nagle off"], &["message", "nagle"]);
        assert_eq!(
            (names.head.as_str(), names.cells.join("|")),
            ("message, nagle", "1, on|64, off".into())
        );
    }

    #[test]
    fn a_name_of_its_own_stands_next_to_a_factor() {
        let names = named(&["KeepAlive on, port 80", "KeepAlive off, port 81"], &["port"]);
        assert_eq!(
            (names.head.as_str(), names.cells),
            ("arm, port", vec!["KeepAlive on, 80".to_owned(), "KeepAlive off, 81".to_owned()])
        );
    }

    #[test]
    fn names_of_their_own_and_a_single_arm_stay_as_they_are() {
        for names in [
            &["link metro"] as &[&str],
            &["link metro", "as it was"],
            &["new pool", "new one"],
            &["link", "link metro, far"],
        ] {
            assert_eq!(named(names, &["link"]).cells, names);
            assert_eq!(named(names, &["link"]).head, "arm");
        }
    }

    #[test]
    fn a_heading_is_shortened_with_its_cells_and_no_further() {
        let names =
            named(&["congestion 1, link 1", "congestion 4, link 1"], &["congestion", "link"]);
        assert_eq!(names.column(18).head, "congestion, link");
        assert_eq!(names.column(12).head, "congestion, link");
        let names =
            named(&["congestion 1, window 1", "congestion 4, window 1"], &["congestion", "window"]);
        assert_eq!(names.column(12).head, "conges…n, window");
    }
}
