//! Established connections of the calling thread's network namespace, and the way to their other ends.

use std::collections::BTreeSet;
use std::fs;

use crate::doctor::Neighbour;
use crate::doctor::neighbours::{Forgets, Held, KeepAlive, Neighbours};
use crate::doctor::routes::Routes;
use tcptoll_kernel::SysError;
use tcptoll_kernel::sock_diag::{Connection, Silence, SockDiag, Timer};

/// Routes and own addresses; those of a family that cannot be read are absent.
pub(super) fn routes() -> Routes {
    let text = |file: &str| {
        fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default()
    };
    Routes::read(&text("route"), &text("ipv6_route"), &text("fib_trie"), &text("if_inet6"))
}

/// Established connections, grouped; and how many there was no room for.
///
/// Cost: one dump of all established connections with their `tcp_info`.
///
/// Errors: the kernel refused the dump.
pub(super) fn neighbours(
    routes: &Routes,
    forgets: Forgets,
) -> Result<(Vec<Neighbour>, u64), SysError> {
    let mut diag = SockDiag::open()?;
    let listening: BTreeSet<u16> =
        diag.listeners()?.iter().map(|socket| socket.address.port()).collect();
    let mut all = Neighbours::new(&listening, routes, forgets);
    diag.silences(|connection, silence| all.add(&held(connection, silence)))?;
    Ok(all.finish())
}

fn held(connection: &Connection, silence: Option<Silence>) -> Held {
    let timer = match (connection.timer, silence) {
        (None, _) => KeepAlive::Off,
        // Probes that are not answered come by another time.
        (Some(Timer::KeepAlive), Some(silence)) if connection.retransmits == 0 => {
            KeepAlive::After((silence.of_peer() + connection.expires).as_secs_f64())
        }
        // Without its silence it is not known when it began.
        (Some(_), _) => KeepAlive::Hidden,
    };
    Held {
        local: connection.local,
        remote: connection.remote,
        timer,
        idle_s: silence.map(|silence| silence.of_data().as_secs_f64()),
    }
}
