//! The certificate of a server of the lab, for the client.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use tcptoll_lab::lab::LabError;

use crate::kit::plan::TrialError;

/// A file of root certificates for the client; it goes with the trial.
pub(crate) struct RootsFile(PathBuf);

impl RootsFile {
    pub(crate) fn write(pem: &str, seed: u64) -> Result<Self, TrialError> {
        let name = format!("tcptoll-{}-{seed:016x}.pem", std::process::id());
        let path = std::env::temp_dir().join(name);
        let refuse = |error: std::io::Error| {
            TrialError::Lab(LabError::Refused(format!("{}: {error}", path.display())))
        };
        // Of this user alone, and nobody else's file of the same name.
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(refuse)?;
        let roots = Self(path.clone());
        file.write_all(pem.as_bytes()).map_err(refuse)?;
        Ok(roots)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RootsFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
