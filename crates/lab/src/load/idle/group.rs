//! A fleet as its host sees it: processes that are given the same orders, and whose answers are put
//! together.

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::time::Duration;

use tcptoll_kernel::{SysError, cpu, process};

use super::{CLOCK_SHIFT, COMMAND};
use crate::channel::{Channel, ChannelError};
use crate::clock::monotonic_ns;
use crate::load::sockets_max;
use crate::messages::{Began, GroupAnswer, IdleSpec, Made, Make, Order, Reply};

/// Where the kernel spreads connections over several listeners, one may get this number of standard deviations more
/// than its share.
const UNEVEN_SD: f64 = 6.0;

/// An order that opens connections is carried out within this.
const ANSWER_LIMIT: Duration = Duration::from_mins(2);

/// The processes of one fleet.
#[derive(Debug, Default)]
pub struct Group {
    members: Vec<(Child, Channel)>,
    /// Whether they have been stopped where they are.
    frozen: bool,
}

impl Group {
    /// Starts the processes, as many as hold all connections.
    ///
    /// Errors: a sentence for the user.
    pub fn make(&mut self, spec: IdleSpec) -> Result<Made, String> {
        let mut made: Option<Made> = None;
        for mut share in shares(spec)? {
            // The first takes the ports; the others listen there too, and so begin after it.
            if let (IdleSpec::Listen { at, .. }, Some(first)) = (&mut share, &made) {
                at.clone_from(&first.listening);
            }
            let listens = matches!(share, IdleSpec::Listen { .. });
            let member = self.start()?;
            give(member, &Make(share))?;
            if listens {
                join(&mut made, answer::<Make>(member)?);
            }
        }
        match made {
            Some(made) => Ok(made),
            None => self.answers::<Make>(),
        }
    }

    /// Gives an order to every process, and puts their answers together.
    ///
    /// Errors: a sentence for the user.
    pub fn order<O: Order<Answer: GroupAnswer>>(&mut self, order: &O) -> Result<O::Answer, String> {
        // A stopped process answers nothing.
        if self.frozen {
            return Ok(O::Answer::of_frozen(monotonic_ns()));
        }
        for (_, member) in &mut self.members {
            give(member, order)?;
        }
        self.answers::<O>()
    }

    /// The answers of all, put together.
    fn answers<O: Order<Answer: GroupAnswer>>(&mut self) -> Result<O::Answer, String> {
        let mut all = None;
        for (_, member) in &mut self.members {
            join(&mut all, answer::<O>(member)?);
        }
        all.ok_or_else(|| format!("order {} to a fleet without a process", O::NAME))
    }

    /// Stops every process where it is.
    pub fn freeze(&mut self) -> Result<Began, SysError> {
        for (child, _) in &self.members {
            process::freeze(child.id())?;
        }
        self.frozen = true;
        Ok(Began { at_ns: monotonic_ns() })
    }

    /// Ends every process.
    pub fn end(&mut self) -> Began {
        let began = Began { at_ns: monotonic_ns() };
        for (child, channel) in &mut self.members {
            channel.close();
            // A stopped process does not see that.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.members.clear();
        self.frozen = false;
        began
    }

    fn start(&mut self) -> Result<&mut Channel, String> {
        let failed = |error: std::io::Error| format!("a fleet cannot be started: {error}");
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new("/proc/self/exe");
        command.env(CLOCK_SHIFT, tcptoll_kernel::clock::shifted_ns().to_string());
        command.arg(COMMAND).arg(theirs.as_raw_fd().to_string());
        let child = process::spawn_with(&mut command, &[theirs.as_fd()]).map_err(failed)?;
        self.members.push((child, Channel::new(ours)));
        self.members.last_mut().map(|(_, channel)| channel).ok_or_else(String::new)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

fn give<O: Order>(member: &mut Channel, order: &O) -> Result<(), String> {
    member.order(order).map_err(|error| lost(&error))
}

fn answer<O: Order>(member: &mut Channel) -> Result<O::Answer, String> {
    match member.receive::<Reply<O::Answer>>(Some(ANSWER_LIMIT)).map_err(|error| lost(&error))? {
        Reply::Answer(answer) => Ok(answer),
        Reply::Failed(sentence) => Err(sentence),
        _ => Err(format!("a process of a fleet answered out of turn to {}", O::NAME)),
    }
}

fn join<A: GroupAnswer>(all: &mut Option<A>, one: A) {
    match all {
        Some(all) => all.join(one),
        None => *all = Some(one),
    }
}

fn lost(error: &ChannelError) -> String {
    format!("a process of a fleet: {error}")
}

/// The parts of what is asked for that one process each can hold.
fn shares(spec: IdleSpec) -> Result<Vec<IdleSpec>, String> {
    let room = sockets_max().map_err(|error| format!("RLIMIT_NOFILE: {error}"))?;
    let all = match &spec {
        IdleSpec::Listen { sockets, .. } => *sockets,
        IdleSpec::Connect { to, .. } => to.iter().map(|(_, count)| count).sum(),
        IdleSpec::Write { .. } => 1,
    };
    let listens = matches!(spec, IdleSpec::Listen { .. });
    let count = processes(all, room, listens).ok_or_else(|| {
        format!(
            "the limit of open files (ulimit -Hn) is {}, too low for {all} connections: raise it, or hold fewer",
            cpu::file_limit().unwrap_or_default()
        )
    })?;
    Ok(match spec {
        IdleSpec::Listen { at, sockets, greet, .. } => {
            let one = |_| IdleSpec::Listen {
                at: at.clone(),
                sockets: if count == 1 { sockets } else { room },
                greet,
                shared: count > 1,
            };
            (0..count).map(one).collect()
        }
        IdleSpec::Connect { to, bind, rate_per_s, congestion } => {
            let part =
                |number: u64, total: u64| total * (number + 1) / count - total * number / count;
            let one = |number| IdleSpec::Connect {
                to: to.iter().map(|&(at, total)| (at, part(number, total))).collect(),
                bind: bind.clone(),
                rate_per_s: rate_per_s.map(|rate| rate / count as f64),
                congestion: congestion.clone(),
            };
            (0..count).map(one).collect()
        }
        spec @ IdleSpec::Write { .. } => vec![spec],
    })
}

/// Processes that hold these connections, at most `room` each; their host has a socket to each. None: it cannot have so
/// many.
fn processes(all: u64, room: u64, listens: bool) -> Option<u64> {
    let share = if listens && all > room {
        // The largest mean whose 6 standard deviations (its root each) still fit.
        let root = ((UNEVEN_SD * UNEVEN_SD + 4.0 * room as f64).sqrt() - UNEVEN_SD) / 2.0;
        (root * root) as u64
    } else {
        room
    };
    let count = if share == 0 { return None } else { all.div_ceil(share).max(1) };
    (count <= room).then_some(count)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn a_process_has_room_for_more_than_its_share_and_a_limit_that_is_too_low_is_refused() {
        // 3,722 + 6 * 61 = 4,088 of 4,096.
        assert_eq!(processes(50_000, 4_096, true), Some(14));
        assert_eq!(processes(50_000, 4_096, false), Some(13));
        assert_eq!(processes(100, 100, true), Some(1));
        // 4 + 6 * 2 = 16: 25 processes, and room for 16.
        assert_eq!((processes(100, 16, true), processes(100, 16, false)), (None, Some(7)));
        assert_eq!((processes(5, 1, true), processes(1, 1, true)), (None, Some(1)));
    }

    #[test]
    fn what_one_process_cannot_hold_is_shared_out_without_loss() {
        let limit = sockets_max().unwrap();
        let at: SocketAddr = "10.0.0.1:1".parse().unwrap();
        let all = [limit * 2, 7];
        let to = all.map(|count| (at, count)).to_vec();
        let spec = IdleSpec::Connect { to, bind: vec![], rate_per_s: None, congestion: None };
        let shares = shares(spec).unwrap();
        assert!(shares.len() > 2, "{}", shares.len());
        let held = |share: &IdleSpec, kind: usize| match share {
            IdleSpec::Connect { to, .. } => to[kind].1,
            _ => 0,
        };
        for (kind, count) in all.into_iter().enumerate() {
            assert_eq!(shares.iter().map(|share| held(share, kind)).sum::<u64>(), count);
        }
        assert!(shares.iter().all(|share| held(share, 0) + held(share, 1) <= limit));
    }
}
