//! One examination of a machine: looks over some seconds, sysctls, neighbours, servers.

use std::collections::BTreeMap;
use std::time::Duration;

use tcptoll_kernel::SysError;
use tcptoll_model::doctor::Machine;

use super::servers;
use crate::watch::{Options, Watch};

/// Looks at the machine for this long.
///
/// Must be called before any thread is started. Errors: as [`Watch::open`] and [`Watch::look`].
pub fn examine(options: &Options, lasts: Duration) -> Result<Machine, SysError> {
    let mut watch = Watch::open(options)?;
    watch.look_at_all()?;
    std::thread::sleep(lasts);
    let state = watch.look_at_all()?.clone();
    Ok(Machine {
        state,
        sysctls: BTreeMap::new(),
        neighbours: Vec::new(),
        servers: servers::configured(),
    })
}
