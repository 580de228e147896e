//! `doctor ssh://HOST`: what can be measured on a host of the user's, and what not, before a run.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::json;
use tcptoll_lab::lab::LabError;
use tcptoll_lab::lab::remote::{Agent, Hello, Part, Reach, SshAddress};

use crate::cli::{DoctorArgs, Format};
use crate::exit::Status;
use crate::screen::StatusLine;
use crate::wrap;

/// Width of the first column.
const NAMES: usize = 10;
/// As the other reports.
const WIDTH: usize = 80;

/// Logs in, says what the host allows, and leaves nothing there but the cached program.
pub(super) fn run(args: &DoctorArgs, host: &str) -> anyhow::Result<Status> {
    let address = SshAddress::parse(host).map_err(|why| anyhow::anyhow!("{host}: {why}"))?;
    let defaults = Reach::default();
    let reach = Reach {
        ssh: args.ssh.clone().unwrap_or(defaults.ssh),
        program: args.remote_binary.clone(),
        dead_after: defaults.dead_after,
    };
    let line = StatusLine::new(!args.quiet);
    line.say(&format!("logging in to {address}"));
    let begun = Instant::now();
    let (hello, ready) = examined(&address, &reach, begun)?;
    drop(line);
    let printed = if args.format == Format::Json {
        let all =
            json!({ "host": address.to_string(), "ready_s": ready.as_secs_f64(), "agent": hello });
        serde_json::to_string(&all)? + "\n"
    } else {
        text(&address, &hello, ready, args.ssh.as_deref())
    };
    Ok(if super::printed(&printed, args.format) { Status::Met } else { Status::NotStored })
}

/// What the agent says, and how long it took until a host of it was ready.
fn examined(
    address: &SshAddress,
    reach: &Reach,
    begun: Instant,
) -> Result<(Hello, Duration), LabError> {
    let mut agent = Agent::begin(address, reach)?;
    agent.try_host(Part::Server)?;
    Ok((agent.hello.clone(), begun.elapsed()))
}

fn text(address: &SshAddress, hello: &Hello, ready: Duration, ssh: Option<&str>) -> String {
    let passport = &hello.passport;
    let mut rows = vec![
        (
            "machine",
            format!(
                "{}, {}, {} CPUs, {}",
                passport.kernel,
                hello.architecture,
                passport.cpus,
                passport.libc.as_deref().unwrap_or("C library not known")
            ),
        ),
        ("program", format!("tcptoll {}, protocol {}", hello.version, hello.protocol)),
        (
            "address",
            hello.address.map_or_else(
                || "ssh does not tell it: --server-address names it".to_owned(),
                |address| format!("{address}, which ssh uses; --server-address names another"),
            ),
        ),
        ("measures", "latencies, CPU time, kernel counters and sysctls (read only), clocks over UDP".to_owned()),
        (
            "queues",
            hello.no_sock_diag.as_ref().map_or_else(
                || "accept queues of its listeners are seen".to_owned(),
                |why| format!("accept queues are not seen: {why}"),
            ),
        ),
        (
            "its end",
            if hello.own_processes {
                "all that a run begins there ends with it, however it ends: it has a PID namespace of its own"
            } else {
                "the kernel refuses a PID namespace: what a server puts into the background may outlive a kill \
                 of the agent"
            }
            .to_owned(),
        ),
        ("never", "sysctls are not changed, and no packets are dropped or delayed there".to_owned()),
    ];
    if let Some(governor) = passport.governor.as_ref().filter(|governor| *governor != "performance")
    {
        rows.push(("CPU clock", format!("governor {governor}: figures vary with the clock")));
    }
    let mut text = format!("{address} · ready in {:.2} s\n", ready.as_secs_f64());
    for (name, words) in rows {
        let first = format!("  {name:NAMES$}");
        let others = " ".repeat(first.len());
        text += &wrap::filled(&words, &first, &others, WIDTH);
        text.push('\n');
    }
    let ssh = ssh.map(|ssh| format!(" --ssh '{}'", ssh.replace('\'', "'\\''"))).unwrap_or_default();
    let path = if hello.address.is_none() { " --server-address ADDRESS" } else { "" };
    let _ = write!(text, "\nnext: tcptoll connect --server {address}{ssh}{path}\n");
    text
}
