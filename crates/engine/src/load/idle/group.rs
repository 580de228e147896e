//! A fleet as its host sees it: processes that are given the same orders, and whose answers are put
//! together.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::time::Duration;

use tcptoll_kernel::process;

use super::{Answer, COMMAND};
use crate::channel::{Channel, ChannelError};
use crate::clock::monotonic_ns;
use crate::load::sockets_max;
use crate::messages::{IdleAnswer, IdleOrder, IdleReport, IdleSpec};

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
    /// Carries out an order.
    ///
    /// Errors: a sentence for the user.
    pub fn answer(&mut self, ask: IdleOrder) -> Answer {
        match ask {
            IdleOrder::Make(spec) => self.make(spec),
            IdleOrder::Freeze => {
                for (child, _) in &self.members {
                    process::freeze(child.id()).map_err(|error| error.to_string())?;
                }
                self.frozen = true;
                Ok(IdleAnswer::Done { at_ns: monotonic_ns() })
            }
            IdleOrder::End => {
                let at_ns = monotonic_ns();
                self.end();
                Ok(IdleAnswer::Done { at_ns })
            }
            ask => self.ask_all(&ask),
        }
    }

    fn make(&mut self, spec: IdleSpec) -> Answer {
        let mut taken: Option<Vec<SocketAddr>> = None;
        for mut share in shares(spec)? {
            // The first takes the ports; the others listen there too, and so begin after it.
            if let (IdleSpec::Listen { at, .. }, Some(taken)) = (&mut share, &taken) {
                at.clone_from(taken);
            }
            let listens = matches!(share, IdleSpec::Listen { .. });
            let member = self.start()?;
            send(member, &IdleOrder::Make(share))?;
            if listens {
                match receive(member)? {
                    IdleAnswer::Listening(at) => taken = Some(at),
                    other => return Err(format!("a fleet answered out of turn: {other:?}")),
                }
            }
        }
        match taken {
            Some(at) => Ok(IdleAnswer::Listening(at)),
            None => self.collect(),
        }
    }

    fn start(&mut self) -> Result<&mut Channel, String> {
        let failed = |error: std::io::Error| format!("a fleet cannot be started: {error}");
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(COMMAND).arg(theirs.as_raw_fd().to_string());
        let child = process::spawn_with(&mut command, &[theirs.as_fd()]).map_err(failed)?;
        self.members.push((child, Channel::new(ours)));
        self.members.last_mut().map(|(_, channel)| channel).ok_or_else(String::new)
    }

    fn ask_all(&mut self, ask: &IdleOrder) -> Answer {
        // A stopped process answers nothing.
        if self.frozen {
            return Ok(match ask {
                IdleOrder::Look => IdleAnswer::Report(Box::default()),
                _ => IdleAnswer::Done { at_ns: monotonic_ns() },
            });
        }
        for (_, channel) in &mut self.members {
            send(channel, ask)?;
        }
        self.collect()
    }

    /// The answers of all, put together.
    fn collect(&mut self) -> Answer {
        let mut report: Option<IdleReport> = None;
        let mut done_ns = u64::MAX;
        for (_, channel) in &mut self.members {
            match receive(channel)? {
                IdleAnswer::Report(one) => report.get_or_insert_default().add(*one),
                IdleAnswer::Done { at_ns } => done_ns = done_ns.min(at_ns),
                IdleAnswer::Listening(_) => {}
            }
        }
        Ok(match report {
            Some(report) => IdleAnswer::Report(Box::new(report)),
            None => IdleAnswer::Done { at_ns: done_ns },
        })
    }

    fn end(&mut self) {
        for (child, channel) in &mut self.members {
            channel.close();
            // A stopped process does not see that.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.members.clear();
        self.frozen = false;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

fn send(channel: &mut Channel, ask: &IdleOrder) -> Result<(), String> {
    channel.send(ask).map_err(|error| lost(&error))
}

fn receive(channel: &mut Channel) -> Answer {
    channel.receive::<Answer>(Some(ANSWER_LIMIT)).map_err(|error| lost(&error))?
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
