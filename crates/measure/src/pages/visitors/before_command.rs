//! A command of the user's that is run before a trial on a server that is not ours: it switches the configuration.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tcptoll_kernel::process::kill_group;
use tcptoll_lab::lab::{Interrupt, LabError};

use crate::kit::plan::TrialError;

/// How long the command may take.
const LIMIT: Duration = Duration::from_mins(2);

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Runs it with the shell, and waits for its end. Its output goes to our stderr.
///
/// Errors: it could not be started, failed, or took too long; the run was interrupted.
pub(super) fn run(command: &str, interrupt: &Interrupt) -> Result<(), TrialError> {
    use std::os::unix::process::CommandExt as _;
    let failed = |why: String| {
        TrialError::Target(format!("the command before the trial, {command:?}, failed: {why}"))
    };
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .process_group(0)
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let begun = Instant::now();
    loop {
        match child.try_wait().map_err(|error| failed(error.to_string()))? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(failed(status.to_string())),
            None if interrupt.signal().is_some() => {
                end(&mut child);
                return Err(LabError::Interrupted.into());
            }
            None if begun.elapsed() > LIMIT => {
                end(&mut child);
                return Err(failed(format!("it did not end within {} s", LIMIT.as_secs())));
            }
            None => std::thread::sleep(LOOK),
        }
    }
}

fn end(child: &mut Child) {
    kill_group(child.id());
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_named_with_its_status() {
        let interrupt = Interrupt::new();
        run("true", &interrupt).unwrap();
        let error = run("exit 3", &interrupt).unwrap_err().to_string();
        assert!(error.contains("\"exit 3\"") && error.contains('3'), "{error}");
    }

    #[test]
    fn a_signal_ends_the_command() {
        let interrupt = Interrupt::new();
        interrupt.flag().store(15, std::sync::atomic::Ordering::SeqCst);
        let begun = Instant::now();
        let error = run("sleep 60", &interrupt).unwrap_err();
        let interrupted = matches!(error, TrialError::Lab(LabError::Interrupted));
        assert!(interrupted && begun.elapsed() < Duration::from_secs(50), "{error}");
    }
}
