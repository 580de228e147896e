//! The front service and the backend of a host, the backend's stall, and the watch of the workers.
//!
//! A backend is stalled by SIGSTOP, and counts as stalled once the kernel shows it as stopped. Open
//! connections stall as well, so a pool of connections alone does not help.

use std::time::Duration;

use serde::de::IgnoredAny;
use tcptoll_kernel::epoll::readable;
use tcptoll_kernel::{SysError, cpu, process};

use super::fronts::{self, Front};
use super::watch::WorkersWatch;
use super::{Running, backends};
use crate::channel::{Channel, Refusal};
use crate::clock::monotonic_ns;
use crate::messages::{
    BackendServing, BackendSpec, Began, FrontServing, FrontSpec, Order, Request, Stall, Stalled,
    TakeWorkers, WatchWorkers, WorkersSeen,
};

/// What `/proc/PID/stat` has for a stopped process.
const STOPPED: char = 'T';

/// A host of the lab has one of each, at most.
pub(crate) struct Pool {
    /// CPUs of the lab. The host itself is pinned to one of them, the front service is not: it would
    /// take the load's.
    cpus: Vec<u32>,
    backend: Option<Running>,
    front: Option<Front>,
    watch: Option<WorkersWatch>,
}

impl Pool {
    /// Nothing runs. `cpus`: those of the lab.
    pub(crate) fn new(cpus: Vec<u32>) -> Self {
        Self { cpus, backend: None, front: None, watch: None }
    }

    /// Starts a backend and waits until it answers.
    pub(crate) fn start_backend(&mut self, spec: &BackendSpec) -> Result<BackendServing, Refusal> {
        if self.backend.is_some() {
            return Err(Refusal("the host has a backend already".to_owned()));
        }
        let (running, serving) = backends::start(spec).map_err(Refusal)?;
        self.backend = Some(running);
        Ok(serving)
    }

    /// Starts a front service and waits until it answers.
    pub(crate) fn start_front(&mut self, spec: &FrontSpec) -> Result<FrontServing, Refusal> {
        if self.front.is_some() {
            return Err(Refusal("the host has a front service already".to_owned()));
        }
        let own = cpu::allowed();
        let _ = cpu::allow(&self.cpus);
        let started = fronts::start(spec);
        let _ = cpu::allow(&own);
        let (front, serving) = started.map_err(Refusal)?;
        self.front = Some(front);
        Ok(serving)
    }

    /// Begins to read the status of the front service again and again.
    pub(crate) fn watch(&mut self, order: WatchWorkers) -> Result<(), Refusal> {
        let none = || Refusal("the host has no front service to watch".to_owned());
        let front = self.front.as_ref().ok_or_else(none)?;
        self.watch = Some(front.watch(order, self.cpus.clone()));
        Ok(())
    }

    /// Ends that, and gives what was read.
    pub(crate) fn take(&mut self, order: TakeWorkers) -> Result<WorkersSeen, Refusal> {
        let none = || Refusal("the host does not watch a front service".to_owned());
        Ok(self.watch.as_mut().ok_or_else(none)?.take(order.from))
    }

    /// Stops the backend for a while.
    pub(crate) fn stall(&self, order: Stall, channel: &mut Channel) -> Result<Stalled, Refusal> {
        let none = || Refusal("the host has no backend to stop".to_owned());
        let backend = self.backend.as_ref().ok_or_else(none)?;
        let pids: Vec<u32> = backend.children.iter().map(std::process::Child::id).collect();
        stall(&pids, order, channel)
    }
}

/// Stops processes of this host, which it started itself, and lets them go on.
fn stall(pids: &[u32], order: Stall, channel: &mut Channel) -> Result<Stalled, Refusal> {
    let began = Began { at_ns: monotonic_ns() };
    channel.started::<Stall>(&began)?;
    let mut stalled =
        Stalled { from_ns: None, until_ns: None, processes: pids.len() as u64, partial: true };
    let stop_ns = began.at_ns.saturating_add(order.after_ns);
    if told_to_stop(stop_ns, channel)? {
        return Ok(stalled);
    }
    let frozen = Frozen::new(pids)?;
    let from_ns = monotonic_ns();
    stalled.from_ns = Some(from_ns);
    stalled.partial = told_to_stop(from_ns.saturating_add(order.for_ns), channel)?;
    stalled.until_ns = Some(frozen.resume()?);
    Ok(stalled)
}

/// Waits until a time on the monotonic clock. Gives whether the parent said stop before.
fn told_to_stop(until_ns: u64, channel: &mut Channel) -> Result<bool, Refusal> {
    loop {
        let left_ns = until_ns.saturating_sub(monotonic_ns());
        if left_ns == 0 {
            return Ok(false);
        }
        if !readable(&*channel, Duration::from_nanos(left_ns))? {
            continue;
        }
        return match channel.receive(None)? {
            Request::Stop => Ok(true),
            Request::Order::<IgnoredAny> { name, .. } => {
                Err(Refusal(format!("order {name} while {} was carried out", Stall::NAME)))
            }
        };
    }
}

/// Processes that are stopped; they go on when this is dropped.
struct Frozen<'a>(&'a [u32]);

impl<'a> Frozen<'a> {
    /// Stops them.
    ///
    /// Errors: also where one was not seen to be stopped, as when it has ended.
    fn new(pids: &'a [u32]) -> Result<Self, Refusal> {
        let frozen = Self(pids);
        for &pid in pids {
            process::freeze(pid)?;
        }
        for &pid in pids {
            if cpu::state(pid) != Some(STOPPED) {
                return Err(Refusal(format!(
                    "the backend (process {pid}) cannot be stopped: it ended"
                )));
            }
        }
        Ok(frozen)
    }

    /// Lets them go on. Gives when, ns.
    fn resume(self) -> Result<u64, SysError> {
        let at_ns = monotonic_ns();
        self.0.iter().try_for_each(|&pid| process::resume(pid))?;
        Ok(at_ns)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        for &pid in self.0 {
            // Without effect on one that runs already.
            let _ = process::resume(pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::process::{Child, Command};

    use super::*;
    use crate::messages::Reply;

    const MS: u64 = 1_000_000;

    fn child() -> Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    fn channels() -> (Channel, Channel) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Channel::new(ours), Channel::new(theirs))
    }

    /// Whether the kernel reports the process as stopped within a time that is never short.
    fn runs_again(pid: u32) -> bool {
        let begun = std::time::Instant::now();
        while cpu::state(pid) == Some(STOPPED) {
            if begun.elapsed() > Duration::from_secs(20) {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    #[test]
    fn a_stall_stops_the_processes_for_its_time_and_lets_them_go_on() {
        let mut backend = child();
        let (mut parent, mut host) = channels();
        let order = Stall { after_ns: 20 * MS, for_ns: 30 * MS };
        let before = monotonic_ns();
        let stalled = stall(&[backend.id()], order, &mut host).unwrap();
        let (from, until) = (stalled.from_ns.unwrap(), stalled.until_ns.unwrap());
        assert!(from >= before + 20 * MS && until >= from + 30 * MS);
        assert!(!stalled.partial && stalled.processes == 1);
        assert!(runs_again(backend.id()));
        let first: Reply<Stalled, Began> = parent.receive(None).unwrap();
        assert!(matches!(first, Reply::Started(Began { at_ns }) if at_ns >= before));
        backend.kill().unwrap();
        backend.wait().unwrap();
    }

    #[test]
    fn a_stall_that_is_stopped_lets_the_backend_go_on_and_is_partial() {
        let mut backend = child();
        let pids = [backend.id()];
        let (parent, mut host) = channels();
        let order = Stall { after_ns: 0, for_ns: u64::MAX };
        let stopped = std::thread::scope(|scope| {
            let stalling = scope.spawn(|| stall(&pids, order, &mut host).unwrap());
            while cpu::state(pids[0]) != Some(STOPPED) {
                std::thread::yield_now();
            }
            let mut parent = parent;
            parent.send(&Request::<()>::Stop).unwrap();
            stalling.join().unwrap()
        });
        assert!(stopped.partial && stopped.from_ns.is_some() && stopped.until_ns.is_some());
        assert!(runs_again(pids[0]));
        backend.kill().unwrap();
        backend.wait().unwrap();
    }

    #[test]
    fn a_stall_that_is_stopped_before_it_begins_never_was() {
        let (mut parent, mut host) = channels();
        parent.send(&Request::<()>::Stop).unwrap();
        let order = Stall { after_ns: u64::MAX, for_ns: 1 };
        let stalled = stall(&[], order, &mut host).unwrap();
        assert!(stalled.partial && stalled.from_ns.is_none() && stalled.until_ns.is_none());
    }

    #[test]
    fn a_backend_that_has_ended_is_a_refusal_and_no_stall() {
        let mut backend = Command::new("true").spawn().unwrap();
        backend.wait().unwrap();
        let (_parent, mut host) = channels();
        let order = Stall { after_ns: 0, for_ns: 1 };
        assert!(stall(&[backend.id()], order, &mut host).is_err());
    }

    #[test]
    fn without_a_service_there_is_nothing_to_watch_or_to_stop() {
        let mut pool = Pool::new(cpu::allowed());
        assert!(
            pool.watch(WatchWorkers { every_ns: 1, memory: None })
                .unwrap_err()
                .0
                .contains("no front")
        );
        assert!(pool.take(TakeWorkers { from: 0 }).unwrap_err().0.contains("does not watch"));
        let (_parent, mut host) = channels();
        let order = Stall { after_ns: 0, for_ns: 1 };
        assert!(pool.stall(order, &mut host).unwrap_err().0.contains("no backend"));
    }
}
