//! The end that answers: it reads a whole request, works, and writes the whole answer.

use std::io;
use std::sync::atomic::Ordering;

use tcptoll_kernel::SysError;
use tcptoll_kernel::cpu::{CpuTime, thread_time};
use tcptoll_kernel::socket::blocking::Blocking;

use super::{Shared, Talk, beside_channel, check, got, options, work};
use crate::channel::Channel;
use crate::clock::monotonic_ns;
use crate::load::{LoadError, pair};
use crate::messages::{Answers, AnswersReport};

/// Answers, a connection after another, until the parent says stop.
pub fn answer(answers: &Answers, channel: &mut Channel) -> Result<AnswersReport, LoadError> {
    check(&[answers.request_bytes])?;
    check(&[answers.response_bytes])?;
    let listener = Blocking::listen(answers.at, &options(&answers.sockets))?;
    let failed = |op| move |error| SysError::new(op, answers.at.to_string(), error);
    let at = listener.tcp().local().map_err(failed("getsockname"))?;
    let shared = Shared::default();
    shared.waits_in(&listener, 0).map_err(failed("dup"))?;
    channel.started::<Answers>(&at)?;
    let mut server = Server { answers, shared: &shared, report: AnswersReport::default() };
    let served = beside_channel(&shared, channel, || server.serve(&listener));
    served?.map_err(failed("accept"))?;
    Ok(server.report)
}

struct Server<'a> {
    answers: &'a Answers,
    shared: &'a Shared,
    report: AnswersReport,
}

impl Server<'_> {
    fn serve(&mut self, listener: &Blocking) -> io::Result<()> {
        loop {
            let socket = match listener.accept() {
                Ok(socket) => socket,
                Err(_) if self.shared.is_stopped() => return Ok(()),
                // It was reset before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            // The listener is interrupted by a stop, too.
            match self.shared.waits_in(&socket, 1) {
                Err(_) if self.shared.is_stopped() => return Ok(()),
                shared => shared?,
            }
            self.over(&socket);
        }
    }

    /// Answers until the client closes or fails: its own report counts that.
    fn over(&mut self, socket: &Blocking) {
        if self.report.answered == 0 {
            self.report.sockets = got(socket).unwrap_or_default();
        }
        let Answers { request_bytes, response_bytes, sockets, .. } = self.answers;
        let mut talk = Talk::over(socket, sockets.quick_ack, *request_bytes);
        let answer = vec![b'a'; *response_bytes as usize];
        let cpu = thread_time();
        let mut begun_ns = None;
        while let Ok(true) = talk.receive(*request_bytes, u64::MAX) {
            begun_ns.get_or_insert_with(monotonic_ns);
            work(self.answers.work_ns);
            if talk.send(&answer, u64::MAX).is_err() {
                break;
            }
            self.report.answered += 1;
            self.shared.done.store(self.report.answered, Ordering::Relaxed);
        }
        // The client closes right after its last exchange, and waiting takes no CPU time.
        let used = thread_time().since(cpu);
        let (user_us, system_us) = self.report.cpu_us;
        let sum =
            CpuTime { user_us: user_us + used.user_us, system_us: system_us + used.system_us };
        self.report.cpu_us = pair(sum);
        self.report.elapsed_ns += begun_ns.map_or(0, |begun| monotonic_ns() - begun);
        self.report.calls += talk.calls;
    }
}
