//! Was standard output open when this program started?
//!
//! Rust's runtime opens `/dev/null` for each standard stream that is closed (`>&-`), so that a later write succeeds and
//! is lost. Its flags are those of `subprocess.DEVNULL` of Python, so it cannot be told apart afterwards. This looks
//! before the runtime does.

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether standard output was closed when this program started.
pub fn was_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

extern "C" fn look() {
    // SAFETY: fcntl(2) with F_GETFD takes no pointer.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    CLOSED.store(flags == -1, Ordering::Relaxed);
}

// SAFETY: the loader calls each function of this section once, before main and with one thread. This one calls a function
// that is safe in a signal handler, and touches an atomic value; it needs nothing of Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;
