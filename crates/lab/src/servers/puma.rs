//! Puma with a Rack application: its configuration.
//!
//! Read in Puma 5.6.5 (`lib/puma/server.rb`, `request.rb`): it has no limit of requests on a
//! connection. After `max_fast_inline` of them a response says `Connection: close`, but only if all
//! threads are busy and another connection waits to be accepted.

use std::path::PathBuf;
use std::process::Command;

use super::certificate::Certificate;
use super::{Prepared, files_each, program, workers};
use crate::files::RunFolder;
use crate::messages::ServerSpec;

/// Threads of one process at least: what Puma has by itself under MRI.
const THREADS_MIN: u64 = 5;

/// And at most: they share one interpreter lock.
const THREADS_MAX: u64 = 64;

pub(super) fn find() -> Result<PathBuf, String> {
    program::find(&["puma"], "puma ruby-rack")
}

pub(super) fn prepare(
    spec: &ServerSpec,
    folder: &RunFolder,
    tls: Option<&Certificate>,
) -> Result<Prepared, String> {
    let program = find()?;
    let version = program::version(&program, "--version")?.replace(" version ", "/");
    files_each("puma", spec, workers(spec))?;
    let application = application(spec);
    let rackup = folder.write("config.ru", application.as_bytes())?;
    let settings = format!("rackup '{}'\n{}", rackup.display(), settings(spec, tls));
    let file = folder.write("puma.rb", settings.as_bytes())?;
    let mut command = Command::new(program);
    command.arg("-C").arg(file).current_dir(folder.path());
    Ok(Prepared {
        name: "puma",
        commands: vec![command],
        version,
        path: if spec.work_ns > 0 { "/work" } else { "/" }.to_owned(),
        configuration: format!("{settings}\n# config.ru\n{application}"),
    })
}

/// The Rack application: one response, and a path that works before it gives it.
fn application(spec: &ServerSpec) -> String {
    // Puma 5 cannot be told to close; but it looks at the request's own wish after the
    // application has run.
    let closing = if spec.keepalive { "" } else { "  env['HTTP_CONNECTION'] = 'close'\n" };
    format!(
        "CONTENT = ('x' * {}).freeze\n\
         run(lambda do |env|\n  \
           sleep {} if env['PATH_INFO'] == '/work'\n\
         {closing}  \
           [200, {{ 'content-type' => 'text/plain' }}, [CONTENT]]\n\
         end)\n",
        spec.body_bytes,
        seconds(spec.work_ns)
    )
}

fn settings(spec: &ServerSpec, tls: Option<&Certificate>) -> String {
    let workers = workers(spec);
    let threads = spec.connections.div_ceil(workers).clamp(THREADS_MIN, THREADS_MAX);
    let mut bind = match tls {
        None => format!("tcp://{}?", spec.at),
        Some(tls) => format!(
            "ssl://{}?cert={}&key={}&verify_mode=none&",
            spec.at,
            tls.chain_file.display(),
            tls.key_file.display()
        ),
    };
    if let Some(backlog) = spec.backlog {
        bind += &format!("backlog={backlog}");
    }
    let mut text = format!(
        "environment 'production'\nquiet\nthreads {threads}, {threads}\nbind '{}'\n",
        bind.trim_end_matches(['?', '&'])
    );
    // One process alone needs no cluster.
    if workers > 1 {
        text += &format!("workers {workers}\n");
    }
    if let Some(ns) = spec.keepalive_timeout_ns {
        // Puma's own word for it, persistent_timeout, takes whole seconds only.
        text += &format!("@options[:persistent_timeout] = {}\n", seconds(ns));
    }
    match spec.keepalive_requests {
        Some(0) => text += "max_fast_inline Float::INFINITY\n",
        Some(requests) => text += &format!("max_fast_inline {requests}\n"),
        None => {}
    }
    text
}

/// Seconds with as many digits as needed.
fn seconds(ns: u64) -> String {
    format!("{}", ns as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::ServerKind;
    use crate::servers::tests::spec;

    #[test]
    fn each_connection_has_a_thread_from_5_to_64() {
        let threads = |connections| {
            settings(&ServerSpec { connections, workers: Some(1), ..spec(ServerKind::Puma) }, None)
                .lines()
                .find_map(|line| line.strip_prefix("threads ").map(str::to_owned))
        };
        assert_eq!(
            [1, 20, 1_000].map(threads),
            ["5, 5", "20, 20", "64, 64"].map(|t| Some(t.into()))
        );
    }

    #[test]
    fn times_below_a_second_are_kept() {
        assert_eq!(
            [0, 1_000_000, 500_000_000, 4_000_000_000].map(seconds),
            ["0", "0.001", "0.5", "4"]
        );
    }
}
