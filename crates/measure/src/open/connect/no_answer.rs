//! What `connect` says of a target that answered nothing.

use tcptoll_lab::messages::ConnectReport;

use crate::kit::no_answer::Unreached;

/// Why a target gave nothing, with what to do about it.
pub(super) fn nothing_reached(name: &str, report: &ConnectReport) -> String {
    let unreached = Unreached {
        subject: format!("--to {name}"),
        operation: "connection",
        outcome: format!("none of {} connections succeeded", report.attempts),
        errors: &report.errors,
        first_errors: &report.first_errors,
    };
    unreached.sentence(&[
        ("bind", "--bind names an address that this host does not have"),
        ("local-ports", "no local port is free: add --bind addresses, or wait a minute"),
        ("timeout", "it accepts connections but sends nothing: write a request with --send"),
    ])
}
