//! Where most requests failed because of their status: which status it was, and how to accept it.

use crate::kit::conclusion::capital;
use tcptoll_core::record::Arm;
use tcptoll_core::units::human_count;

/// The status of all or most answers of an arm, where it made them failures: of the first such arm.
pub(super) fn unexpected(arms: &[&Arm]) -> Option<String> {
    arms.iter().find_map(|arm| {
        let text = of_arm(arm)?;
        Some(if arms.len() > 1 { format!("In arm {}, {text}", arm.name) } else { capital(&text) })
    })
}

fn of_arm(arm: &Arm) -> Option<String> {
    let failed = arm.errors.get("status").copied().unwrap_or(0);
    if failed <= arm.attempts / 2 {
        return None;
    }
    // Each status is a success or a failure as a whole: one that came more often than there were
    // successes is a failure.
    let (status, count) = arm.statuses.iter().max_by_key(|(_, count)| **count)?;
    if *count > failed || *count <= arm.ok {
        return None;
    }
    let answers: u64 = arm.statuses.values().sum();
    Some(if *count == answers {
        let all = human_count(answers);
        format!(
            "all {all} responses had status {status}; `--expect-status {status}` counts them as \
             successes."
        )
    } else {
        format!(
            "{} of {} responses had status {status}; `--expect-status` with {status} counts them \
             as successes.",
            human_count(*count),
            human_count(answers)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(ok: u64, failed: u64, statuses: &[(&str, u64)]) -> Arm {
        Arm {
            name: "a".into(),
            attempts: ok + failed,
            ok,
            errors: [("status".to_owned(), failed)].into(),
            statuses: statuses.iter().map(|(s, n)| ((*s).to_owned(), *n)).collect(),
            ..Arm::default()
        }
    }

    #[test]
    fn a_status_that_made_all_or_most_answers_failures_is_named_with_its_option() {
        let all = arm(0, 67_500, &[("404", 67_500)]);
        assert_eq!(
            unexpected(&[&all]).as_deref(),
            Some(
                "All 67,500 responses had status 404; `--expect-status 404` counts them as \
                 successes."
            )
        );
        let most = arm(100, 900, &[("200", 100), ("404", 2), ("503", 898)]);
        let text = unexpected(&[&arm(5, 0, &[("200", 5)]), &most]).unwrap();
        assert!(text.starts_with("In arm a, 898 of 1,000 responses had status 503; "), "{text}");
    }

    #[test]
    fn successes_and_failures_of_another_kind_are_not_named() {
        assert_eq!(unexpected(&[&arm(900, 100, &[("200", 900), ("404", 100)])]), None);
        assert_eq!(unexpected(&[&arm(0, 0, &[])]), None);
        let odd = arm(400, 600, &[("200", 400), ("404", 300), ("500", 300)]);
        assert_eq!(unexpected(&[&odd]), None, "none came more often than the successes");
    }
}
