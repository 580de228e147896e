//! A reader and the memory of what it read: what every way to show a watch begins with.

use crate::watch::{History, State};
use tcptoll_core::printable::line;
use tcptoll_kernel::SysError;
use tcptoll_lab::clock::boottime_ns;

use super::{NamespaceReader, Options};

/// The memory of a watch that begins now: of this host, which may have been given any bytes for a name.
pub(crate) fn new_history() -> History {
    let host = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    let uptime_s = std::time::Duration::from_nanos(boottime_ns()).as_secs_f64();
    History::new(line(String::from_utf8_lossy(&host).trim()), uptime_s)
}

/// Watches one network namespace, and remembers the last minutes.
#[derive(Debug)]
pub struct Watch {
    reader: NamespaceReader,
    history: History,
}

impl Watch {
    /// As [`NamespaceReader::open`]: before any thread is started.
    pub fn open(options: &Options) -> Result<Self, SysError> {
        let reader = NamespaceReader::open(options)?;
        Ok(Self { reader, history: new_history() })
    }

    /// Looks once; gives what this look and the one before it say together.
    ///
    /// Errors: as [`NamespaceReader::look`]; the memory stays as it was.
    pub fn look(&mut self) -> Result<&State, SysError> {
        let look = self.reader.look()?;
        Ok(self.history.push(look))
    }

    /// As [`look`](Self::look), with a new table of all sockets whatever it costs.
    pub fn look_at_all(&mut self) -> Result<&State, SysError> {
        let look = self.reader.look_at_all()?;
        Ok(self.history.push(look))
    }

    /// The last minutes.
    pub fn history(&self) -> &History {
        &self.history
    }
}
