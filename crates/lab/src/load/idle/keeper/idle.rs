//! What happens on connections that idle: what is read from them, and how they are tested.

use std::io;
use std::time::Duration;

use tcp_heartbeat::frame::{Decoder, Frame, NULL_FRAME};
use tcp_heartbeat::kernel::unacknowledged;
use tcp_heartbeat::{Member, ReaperStep};
use tcptoll_core::tcp::checking::Evidence;
use tcptoll_kernel::epoll::Event;
use tcptoll_kernel::keepalive::error_name;

use super::{Keeper, State};
use crate::clock::monotonic_ns;

/// A message of a peer that speaks the library's framing is at most this long, bytes.
const FRAME_MAX: usize = 64 << 10;

impl Keeper {
    /// Something happened on a connection.
    pub(super) fn happened(&mut self, slot: u32, event: Event) {
        let Some(kept) = self.slots.get(slot) else { return };
        if matches!(kept.state, State::Connecting(_)) {
            match kept.tcp.take_error() {
                Ok(None) if event.writable && !event.broken => self.made(slot),
                Ok(None) if !event.broken => return,
                Ok(None) => return self.failed(slot, &io::ErrorKind::ConnectionReset.into()),
                Ok(Some(error)) | Err(error) => return self.failed(slot, &error),
            }
        }
        if event.readable || event.broken {
            self.read(slot);
        }
    }

    /// Reads everything that has come.
    fn read(&mut self, slot: u32) {
        loop {
            let Some(kept) = self.slots.get_mut(slot) else { return };
            match kept.tcp.read(&mut self.buffer) {
                Ok(None) => return,
                Ok(Some(0)) => return self.ended(slot, "read returned 0".to_owned()),
                Ok(Some(length)) => {
                    self.report.bytes_read += length as u64;
                    let now_ns = monotonic_ns();
                    if let State::Arriving(began) = kept.state {
                        kept.state = State::Open;
                        self.report.arrival.record_ns(now_ns.saturating_sub(began));
                    }
                    if let Some(member) = kept.member {
                        self.checks.heard(member, Duration::from_nanos(now_ns));
                    }
                    let asks = asks(&mut kept.partial, &self.buffer[..length]);
                    for _ in 0..asks {
                        if let Ok(Some(_)) = kept.tcp.write(&NULL_FRAME) {
                            self.report.answers += 1;
                        }
                    }
                    if length < self.buffer.len() {
                        return;
                    }
                }
                Err(error) => {
                    let name = error_name(&error);
                    // What a program sees that reads on.
                    let again = said(kept.tcp.read(&mut self.buffer));
                    *self.report.read_said.entry(format!("{name}, then {again}")).or_default() += 1;
                    return self.ended(slot, name);
                }
            }
        }
    }

    pub(super) fn step(&mut self, step: ReaperStep<u32>, now: Duration) {
        match step {
            ReaperStep::Test(_, slot) => self.test(slot),
            ReaperStep::Look(member, slot) => drop(self.shows_life(member, slot, now)),
            ReaperStep::Judge(member, slot) => {
                if !self.checks.judges {
                    return self.checks.acknowledged(member, now);
                }
                if self.shows_life(member, slot, now) {
                    return;
                }
                let Some(kept) = self.slots.get(slot) else { return };
                let read = said(kept.tcp.read(&mut self.buffer));
                *self.report.read_said.entry(read).or_default() += 1;
                let how = match self.checks.evidence {
                    Evidence::Acknowledged => "no acknowledgment",
                    Evidence::Answered => "no answer",
                };
                self.ended(slot, how.to_owned());
            }
        }
    }

    /// Sends a Null.
    fn test(&mut self, slot: u32) {
        let Some(kept) = self.slots.get(slot) else { return };
        match kept.tcp.write(&self.checks.null) {
            Ok(Some(_)) => self.report.nulls += 1,
            // Its send buffer is full of what nobody acknowledges: that is a test, too.
            Ok(None) => {}
            Err(error) => self.ended(slot, error_name(&error)),
        }
    }

    /// Whether there is evidence of life since the test; notes it if there is.
    fn shows_life(&mut self, member: Member, slot: u32, now: Duration) -> bool {
        let Some(kept) = self.slots.get(slot) else { return true };
        let alive = self.checks.evidence == Evidence::Acknowledged
            && unacknowledged(&kept.tcp).is_ok_and(|bytes| bytes == 0);
        if alive {
            self.checks.acknowledged(member, now);
        }
        alive
    }
}

/// How many Null messages that want an answer are among the bytes.
///
/// A frame whose end has not come is kept; a peer that speaks another protocol asks for nothing.
fn asks(partial: &mut Option<Box<Decoder>>, bytes: &[u8]) -> usize {
    // Nearly always frames come whole, and nothing has to be remembered.
    if partial.is_none() && bytes.chunks(NULL_FRAME.len()).all(|word| word == NULL_FRAME) {
        return 0;
    }
    let decoder = partial.get_or_insert_with(|| Box::new(Decoder::new(FRAME_MAX)));
    decoder.push(bytes);
    let mut asks = 0;
    while let Ok(Some(frame)) = decoder.next_frame() {
        asks += usize::from(frame == Frame::Ask);
    }
    if !decoder.is_inside_frame() {
        *partial = None;
    }
    asks
}

/// What `read(2)` says.
fn said(read: io::Result<Option<usize>>) -> String {
    match read {
        Ok(None) => "EAGAIN".to_owned(),
        Ok(Some(0)) => "0".to_owned(),
        Ok(Some(_)) => "data".to_owned(),
        Err(error) => error_name(&error),
    }
}
