//! A fleet as its host sees it: processes that are given the same orders, and whose answers are put
//! together.

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::time::Duration;

use tcptoll_kernel::{SysError, process};

use super::{CLOCK_SHIFT, COMMAND};
use crate::channel::{Channel, ChannelError};
use crate::clock::monotonic_ns;
use crate::load::sockets_max;
use crate::messages::{Began, GroupAnswer, IdleSpec, Made, Make, Order, Reply};

/// Where the kernel spreads connections over several listeners, one may get a tenth more than its
/// share: six standard deviations from 4,000 a process on.
const UNEVEN: f64 = 1.1;

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
    Ok(match spec {
        IdleSpec::Listen { at, sockets, greet, .. } => {
            let uneven = if sockets > room { (sockets as f64 * UNEVEN) as u64 } else { sockets };
            let count = uneven.div_ceil(room).max(1);
            let one = |_| IdleSpec::Listen {
                at: at.clone(),
                sockets: if count == 1 { sockets } else { room },
                greet,
                shared: count > 1,
            };
            (0..count).map(one).collect()
        }
        IdleSpec::Connect { to, bind, rate_per_s, congestion } => {
            let all: u64 = to.iter().map(|(_, count)| count).sum();
            let count = all.div_ceil(room).max(1);
            let part = |number: u64, of: u64| of * (number + 1) / count - of * number / count;
            let one = |number| IdleSpec::Connect {
                to: to.iter().map(|&(at, of)| (at, part(number, of))).collect(),
                bind: bind.clone(),
                rate_per_s: rate_per_s.map(|rate| rate / count as f64),
                congestion: congestion.clone(),
            };
            (0..count).map(one).collect()
        }
        spec @ IdleSpec::Write { .. } => vec![spec],
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

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
