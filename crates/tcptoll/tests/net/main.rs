//! The net: what the program says, compared with `said/`, byte for byte. It proves that a change of the code
//! changed nothing that a user sees.
//!
//! It runs the program, where nothing of this machine shows (`program.rs`), and names no type of ours: crates and
//! modules can be moved and renamed without a change here. Nothing is measured. Records in every format are in
//! `tests/records`, which belongs to the net too; long help and schemas are in `docs/reference/`.
//!
//! After a change on purpose: `INSTA_UPDATE=always cargo test -p tcptoll --test net`, and read the difference.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../cli/lines.rs"]
mod lines;
mod options;
#[path = "../records/pretty.rs"]
mod pretty;
mod printed;
mod program;
mod records;
mod refused;

use std::sync::atomic::{AtomicUsize, Ordering};

use program::Program;

/// `said` is the file `said/NAME.snap`.
fn frozen(name: &str, said: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("said");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, said));
}

/// What `work` makes of each item, in their order. Each thread has a program in a folder of its own.
fn concurrently<T: Sync, R: Send>(items: &[T], work: impl Fn(&Program, &T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let worker = || {
        let (program, mut done) = (Program::new(), Vec::new());
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return done };
            done.push((at, work(&program, item)));
        }
    };
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, made)| made).collect()
}
