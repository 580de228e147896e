//! Socket buffers asked for above what the kernel grants.

use super::super::{Buffers, Machine, ServerConfig, Sourced};
use super::BUFFERS_OVER_CAP;
use super::servers::{at_text, known, restart};
use crate::diagnosis::{Diagnosis, Fix, Severity};
use crate::watch::diagnoses::evidence;
use tcptoll_core::units::text_size;

/// `setsockopt(2)` clamps `SO_RCVBUF` to `rmem_max` and `SO_SNDBUF` to `wmem_max` without an error. The
/// kernel then doubles the value, asked or clamped, for its own overhead (socket(7)).
pub(super) fn over_cap(machine: &Machine) -> Vec<Diagnosis> {
    let mut found: Vec<Diagnosis> = Vec::new();
    for server in known(machine) {
        let of_listens = server.listens.iter().filter_map(|one| one.buffers.as_ref());
        for buffers in of_listens.chain(server.buffers.as_ref()) {
            let Buffers { receive, send } = buffers;
            let options = [
                ("SO_RCVBUF", "net.core.rmem_max", receive),
                ("SO_SNDBUF", "net.core.wmem_max", send),
            ];
            for (option, cap, asked) in options {
                let (Some(asked), Some(most)) = (asked, machine.number(cap)) else { continue };
                if asked.value <= most || asked.at.is_default() {
                    continue;
                }
                let one = over(server, asked, (option, cap, most));
                // One line may be about several addresses.
                if !found.iter().any(|known| known.subject == one.subject) {
                    found.push(one);
                }
            }
        }
    }
    found
}

fn over(
    server: &ServerConfig,
    asked: &Sourced<u64>,
    (option, cap, most): (&str, &str, u64),
) -> Diagnosis {
    let program = server.program.name();
    let text = format!(
        "{program} asks for {option} of {}; {cap} clamps it to {}",
        text_size(asked.value),
        text_size(most)
    );
    let evidence = evidence([
        ("asked", Some(asked.value.into())),
        ("configured_at", Some(at_text(asked).into())),
        (cap, Some(most.into())),
        ("effective", Some(most.saturating_mul(2).into())),
        ("effective_if_granted", Some(asked.value.saturating_mul(2).into())),
        ("program", Some(program.into())),
        ("pid", Some(server.pid.into())),
    ]);
    let fix = Fix {
        change: format!(
            "Raise {cap} to the configured size. Or remove the setting, so that the kernel tunes the buffer size."
        ),
        commands: vec![format!("sysctl -w {cap}={}", asked.value), restart(server)],
        effect: format!(
            "The buffer gets {} instead of {} (the kernel doubles each size).",
            text_size(asked.value.saturating_mul(2)),
            text_size(most.saturating_mul(2))
        ),
        risk: "Each connection may hold kernel memory of that size. A fixed size also disables the kernel's autotuning \
               (tcp_rmem, tcp_wmem). The sysctl lasts until the next boot."
            .to_owned(),
        undo: format!("sysctl -w {cap}={most}, and restart again."),
    };
    Diagnosis {
        id: BUFFERS_OVER_CAP.into(),
        severity: Severity::Warning,
        subject: format!("{} {option}", at_text(asked)),
        text,
        evidence,
        fix: Some(fix),
    }
}
