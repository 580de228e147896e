//! TCP connections through `io_uring`, on direct descriptors: sockets of a table of the ring's own,
//! which do not count against the limit of open files.
//!
//! Operations are queued, go to the kernel together in [`Ring::wait`], and are answered there. All
//! memory that the kernel reads or writes meanwhile belongs to the ring (`memory.rs`). The order
//! of submission is kept: what is asked for inline (socket, options, send, close) has been done
//! when the wait returns. A ring belongs to the thread that made it.

mod memory;
mod operation;

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::time::Duration;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{CancelBuilder, DestinationSlot, Fixed, RecvMsgOut, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode};

use crate::SysError;
pub use memory::Route;
use memory::{Addresses, Buffers, Texts};
use operation::operation;
pub use operation::{Accepted, Completion, Operation, Settings, Until};

/// The group of the only buffers.
const GROUP: u16 = 0;

/// A text of at most so many bytes is sent without a completion. Such a send is never short on a
/// connection whose send buffer is empty; where it is, the ring sends the rest.
const SHORT: usize = 4096;

/// Most that one [`Ring::send`] takes, bytes.
const LONG: usize = 64 << 10;

/// Room for the short texts of one turn, bytes.
const AREA: usize = 64 << 10;

/// Room for the control message with the kernel's receive stamp, bytes.
const CONTROL: usize = 64;

/// Receive: wait first, there is nothing to read yet. Source: `io_uring_prep_recv(3)`.
const POLL_FIRST: u16 = 1;

/// The kernel's answer as it came.
struct Raw {
    tag: u64,
    result: i32,
    flags: u32,
}

struct Memory {
    buffers: Buffers,
    texts: Texts,
    routes: Vec<Addresses>,
    /// Lengths of name and control message in front of what is received with stamps.
    head: Box<libc::msghdr>,
    /// Where peeks put their byte, which nobody reads.
    peeked: Box<UnsafeCell<u8>>,
}

/// An `io_uring` with a table of sockets and buffers to receive into.
pub struct Ring {
    queues: ManuallyDrop<IoUring>,
    memory: ManuallyDrop<Memory>,
    done: VecDeque<Raw>,
    /// The buffer of the last completion, and where in it the bytes are.
    current: Option<(u16, usize, usize)>,
    held: Vec<u32>,
    /// The operations of one connect, kept for its memory.
    chain: Vec<Entry>,
    direct: u32,
    stamps: bool,
    begun: bool,
    /// There was no room in the queue, and a part of it went to the kernel early.
    flushed: bool,
    /// The kernel takes requests from the thread that made the ring, and from no other.
    _not_send: PhantomData<*const ()>,
}

/// Most sockets in the table of one ring: the soft limit of open files, at most 2^20 (Linux 6.18,
/// `io_sqe_files_register()`).
pub fn max_direct() -> u32 {
    nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)
        .map_or(1024, |(soft, _)| soft.min(1 << 20) as u32)
}

/// Says why rings cannot be used here, by making a small one.
///
/// Errors: `EPERM`: forbidden by a sysctl or the container; `ENOSYS`: not in this kernel; `EINVAL`:
/// older than Linux 6.0.
pub fn available() -> Result<(), SysError> {
    let settings = Settings {
        entries: 16,
        completions: 64,
        direct: 8,
        buffers: 8,
        buffer_bytes: 256,
        stamps: false,
    };
    let ring = Ring::new(&settings)?;
    let mut probe = Probe::new();
    let submitter = ring.queues.submitter();
    let failed = |error| SysError::new("IORING_REGISTER_PROBE", "a ring", error);
    submitter.register_probe(&mut probe).map_err(failed)?;
    let needed = [
        ("IORING_OP_SOCKET", opcode::Socket::CODE),
        ("IORING_OP_CONNECT", opcode::Connect::CODE),
        ("IORING_OP_SEND", opcode::Send::CODE),
        ("IORING_OP_RECV", opcode::Recv::CODE),
        ("IORING_OP_CLOSE", opcode::Close::CODE),
        ("IORING_OP_ASYNC_CANCEL", opcode::AsyncCancel2::CODE),
    ];
    let missing = needed.into_iter().find(|(_, code)| !probe.is_supported(*code));
    missing.map_or(Ok(()), |(name, _)| {
        Err(SysError::new(name, "this kernel", io::ErrorKind::Unsupported))
    })
}

/// Makes the ring itself, with what this kernel has.
fn setup(settings: &Settings) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_submit_all().setup_cqsize(settings.completions);
    // Completions are made while the thread waits, not in the middle of its work. Since Linux 6.1.
    builder.setup_single_issuer().setup_defer_taskrun();
    match builder.build(settings.entries) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::builder()
            .dontfork()
            .setup_submit_all()
            .setup_cqsize(settings.completions)
            .setup_coop_taskrun()
            .build(settings.entries),
        built => built,
    }
}

impl Ring {
    /// Makes a ring for this thread.
    pub fn new(settings: &Settings) -> Result<Self, SysError> {
        let ring = setup(settings).map_err(|error| {
            let on = match error.raw_os_error() {
                Some(libc::EPERM) => {
                    "a ring, which kernel.io_uring_disabled or a seccomp filter forbids"
                }
                Some(libc::ENOSYS) => "a ring, which this kernel lacks or a seccomp filter forbids",
                _ => "a ring",
            };
            SysError::new("io_uring_setup", on, error)
        })?;
        let mut buffers = Buffers::new(settings.buffers, settings.buffer_bytes.max(256))?;
        // SAFETY: all zeroes is a valid msghdr: null pointers with lengths of 0.
        let mut head: Box<libc::msghdr> = Box::new(unsafe { std::mem::zeroed() });
        head.msg_controllen = CONTROL as _;
        let failed = |op, on: String| move |error| SysError::new(op, on, error);
        let submitter = ring.submitter();
        submitter.register_files_sparse(settings.direct).map_err(|error| {
            let limit = error.raw_os_error() == Some(libc::EMFILE);
            let hint =
                if limit { ", above the limit of open files: raise it with ulimit -n" } else { "" };
            let on = format!("a table of {} sockets{hint}", settings.direct);
            SysError::new("IORING_REGISTER_FILES2", on, error)
        })?;
        // SAFETY: the entries outlive the ring: both go in `drop`, the ring first.
        unsafe {
            submitter.register_buf_ring_with_flags(buffers.entries(), buffers.count, GROUP, 0)
        }
        .map_err(failed("IORING_REGISTER_PBUF_RING", format!("{} buffers", settings.buffers)))?;
        for buffer in 0..buffers.count {
            buffers.give(buffer);
        }
        Ok(Self {
            queues: ManuallyDrop::new(ring),
            memory: ManuallyDrop::new(Memory {
                buffers,
                texts: Texts::new(AREA),
                routes: Vec::new(),
                head,
                peeked: Box::new(UnsafeCell::new(0)),
            }),
            done: VecDeque::new(),
            current: None,
            held: Vec::new(),
            chain: Vec::new(),
            direct: settings.direct,
            stamps: settings.stamps,
            begun: false,
            flushed: false,
            _not_send: PhantomData,
        })
    }

    /// Adds a route and tries its socket, options and source address once; routes count from 0.
    ///
    /// Errors: what the kernel refuses, by name; `EBUSY` after the first [`Ring::connect`].
    pub fn add_route(&mut self, route: &Route) -> Result<usize, SysError> {
        let on = |what: &str| format!("{what} of a direct descriptor");
        if self.begun {
            return Err(SysError::new("add_route", "a ring in use", nix::errno::Errno::EBUSY));
        }
        self.memory.routes.push(Addresses::new(route, self.stamps));
        let number = self.memory.routes.len() - 1;
        let mut entries = Vec::new();
        self.prepare(&mut entries, 0, number, false);
        entries.pop();
        // A chain has to end: with nothing, on behalf of the connect.
        entries.push(opcode::Nop::new().build().user_data(Operation::Connect.tag(0, 0)));
        let count = entries.len();
        let failed = |error| SysError::new("io_uring_enter", on("socket"), error);
        self.push(&entries).map_err(failed)?;
        self.wait(count, None, Some(Duration::from_secs(1)))?;
        self.close(0).and_then(|()| self.queues.submit()).map_err(failed)?;
        let addresses = &self.memory.routes[number];
        for raw in self.done.drain(..) {
            if raw.result >= 0 || raw.result == -libc::ECANCELED {
                continue;
            }
            let error = io::Error::from_raw_os_error(-raw.result);
            let (op, what) = match operation(raw.tag) {
                Operation::Option => {
                    let name = addresses.options.get((raw.tag >> 40) as usize);
                    ("setsockopt", name.map_or("option", |option| option.name))
                }
                Operation::Bind => ("bind", "source address"),
                _ => ("socket", "socket"),
            };
            return Err(SysError::new(op, on(what), error));
        }
        Ok(number)
    }

    /// The operations up to the connect, which is the last. `quiet`: only failures are told.
    fn prepare(&self, entries: &mut Vec<Entry>, direct: u32, route: usize, quiet: bool) {
        let addresses = &self.memory.routes[route];
        let place = DestinationSlot::try_from_slot_target(direct).ok();
        // A chain stops where it fails, so that no connect goes out from another address.
        let flags = if quiet { Flags::SKIP_SUCCESS | Flags::IO_LINK } else { Flags::IO_LINK };
        let socket = opcode::Socket::new(addresses.domain, libc::SOCK_STREAM, 0)
            .file_index(place)
            .build()
            .user_data(Operation::Socket.tag(direct, 0));
        entries.push(socket.flags(flags));
        for (at, option) in addresses.options.iter().enumerate() {
            let set = opcode::SetSockOpt::new(
                Fixed(direct),
                option.level,
                option.option,
                option.value.as_ptr().cast(),
                option.value.len() as u32,
            );
            let tag = Operation::Option.tag(direct, at as u32);
            entries.push(set.build().user_data(tag).flags(flags));
        }
        if let Some(source) = &addresses.source {
            let bind = opcode::Bind::new(Fixed(direct), source.as_ptr().cast(), source.len());
            let tag = Operation::Bind.tag(direct, 0);
            entries.push(bind.build().user_data(tag).flags(flags));
        }
        let target = &addresses.target;
        let connect = opcode::Connect::new(Fixed(direct), target.as_ptr().cast(), target.len());
        entries.push(connect.build().user_data(Operation::Connect.tag(direct, 0)));
    }

    /// Queues a new socket in an empty place of the table, and its handshake over a route.
    ///
    /// Exactly one completion follows: [`Operation::Connect`], or the failure of what goes before.
    ///
    /// Panics: there is no such place or route.
    pub fn connect(&mut self, direct: u32, route: usize) -> io::Result<()> {
        assert!(direct < self.direct, "place {direct} of a table of {}", self.direct);
        self.begun = true;
        let mut entries = std::mem::take(&mut self.chain);
        entries.clear();
        self.prepare(&mut entries, direct, route, true);
        let pushed = self.push(&entries);
        self.chain = entries;
        pushed
    }

    /// Queues a copy of the first bytes of a text, at most 64 KiB of it.
    ///
    /// The next send on the same connection must wait until this one is decided.
    pub fn send(&mut self, direct: u32, bytes: &[u8]) -> io::Result<Accepted> {
        if bytes.len() <= SHORT
            && let Some((part, start)) = self.memory.texts.short(bytes)
        {
            let send = opcode::Send::new(Fixed(direct), start, bytes.len() as u32)
                .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL | libc::MSG_DONTWAIT)
                .build()
                .user_data(Operation::Short.tag(direct, part))
                .flags(Flags::SKIP_SUCCESS);
            self.push(&[send])?;
            return Ok(Accepted { bytes: bytes.len(), told: false });
        }
        let bytes = &bytes[..bytes.len().min(LONG)];
        self.send_block(direct, bytes)?;
        Ok(Accepted { bytes: bytes.len(), told: true })
    }

    fn send_block(&mut self, direct: u32, bytes: &[u8]) -> io::Result<()> {
        let (number, start) = self.memory.texts.block(bytes);
        let send = opcode::Send::new(Fixed(direct), start, bytes.len() as u32)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
            .build()
            .user_data(Operation::Send.tag(direct, number));
        self.push(&[send]).inspect_err(|_| self.memory.texts.release(number))
    }

    /// Queues a receive into the next free buffer. With stamps it always stays.
    pub fn receive(&mut self, direct: u32, until: Until) -> io::Result<()> {
        let place = Fixed(direct);
        let entry = match until {
            _ if self.stamps => {
                opcode::RecvMsgMulti::new(place, &raw const *self.memory.head, GROUP)
                    .ioprio(POLL_FIRST)
                    .build()
            }
            Until::Ended => opcode::RecvMulti::new(place, GROUP).build(),
            Until::Once { waiting } => {
                let length = self.memory.buffers.length;
                opcode::Recv::new(place, std::ptr::null_mut(), length)
                    .ioprio(if waiting { POLL_FIRST } else { 0 })
                    .buf_group(GROUP)
                    .build()
                    .flags(Flags::BUFFER_SELECT)
            }
        };
        self.push(&[entry.user_data(Operation::Receive.tag(direct, 0))])
    }

    /// Queues a look at whether the peer has closed; exactly one [`Operation::Peek`] follows, which
    /// is there when the next wait returns.
    pub fn peek(&mut self, direct: u32) -> io::Result<()> {
        let peek = opcode::Recv::new(Fixed(direct), self.memory.peeked.get(), 1)
            .flags(libc::MSG_PEEK | libc::MSG_DONTWAIT)
            .build()
            .user_data(Operation::Peek.tag(direct, 0));
        self.push(&[peek])
    }

    /// Queues the end of all that is under way on a socket; each completes with `ECANCELED`.
    pub fn cancel(&mut self, direct: u32) -> io::Result<()> {
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::fd(Fixed(direct)).all())
            .build()
            .user_data(Operation::Cancel.tag(direct, 0))
            .flags(Flags::SKIP_SUCCESS);
        self.push(&[cancel])
    }

    /// Queues the close of a socket. The place is empty when the next wait returns; the socket is
    /// closed as soon as nothing is under way on it.
    pub fn close(&mut self, direct: u32) -> io::Result<()> {
        let close = opcode::Close::new(Fixed(direct))
            .build()
            .user_data(Operation::Close.tag(direct, 0))
            .flags(Flags::SKIP_SUCCESS);
        self.push(&[close])
    }

    /// Queues operations side by side; submits what is queued if there is no room for all.
    fn push(&mut self, entries: &[Entry]) -> io::Result<()> {
        let queue = self.queues.submission();
        let room = queue.capacity() - queue.len();
        drop(queue);
        if room < entries.len() {
            self.flushed = true;
            self.queues.submit()?;
        }
        // SAFETY: every pointer of an entry is into `memory`, which the ring keeps until the kernel
        // is done with it: texts, addresses, option values, the head of receives with stamps,
        // the byte of peeks.
        unsafe { self.queues.submission().push_multiple(entries) }
            .map_err(|_| io::Error::from_raw_os_error(libc::EBUSY))
    }

    /// Whether operations went to the kernel before they were submitted, because the queue was full,
    /// since this was last asked.
    pub fn take_flushed(&mut self) -> bool {
        std::mem::take(&mut self.flushed)
    }

    /// Submits what is queued, in order, without waiting.
    pub fn submit(&mut self) -> Result<(), SysError> {
        match self.queues.submit().map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) | Err((Some(libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => Ok(()),
            Err((_, error)) => Err(SysError::new("io_uring_enter", "a ring", error)),
        }
    }

    /// Submits what is queued and waits for `want` completions or until `timeout` has passed.
    ///
    /// `batch`: after so long one completion is enough; not longer than `timeout`. Where the kernel
    /// has no such wait (before Linux 6.12), one is enough at once.
    pub fn wait(
        &mut self,
        want: usize,
        batch: Option<Duration>,
        timeout: Option<Duration>,
    ) -> Result<(), SysError> {
        let spec = timeout.map(|t| Timespec::from(t.min(Duration::from_hours(24))));
        let mut args = SubmitArgs::new();
        let mut want = want.max(1);
        if let Some(batch) = batch {
            if self.queues.params().is_feature_min_timeout() {
                let batch = timeout.map_or(batch, |timeout| batch.min(timeout));
                args = args.min_wait_usec(batch.as_micros() as u32);
            } else {
                want = 1;
            }
        }
        let submitter = self.queues.submitter();
        let waited = match &spec {
            Some(spec) => submitter.submit_with_args(want, &args.timespec(spec)),
            None => submitter.submit_with_args(want, &args),
        };
        match waited.map_err(|error| (error.raw_os_error(), error)) {
            // The time has passed; a signal; too many completions or too little memory for now.
            Ok(_) | Err((Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => {}
            Err((_, error)) => return Err(SysError::new("io_uring_enter", "a ring", error)),
        }
        self.collect().map_err(|error| SysError::new("io_uring_enter", "a ring", error))
    }

    /// Takes the completions over, and sees to short sends that were not complete.
    fn collect(&mut self) -> io::Result<()> {
        self.held.clear();
        let first = self.done.len();
        loop {
            let completions = self.queues.completion();
            self.done.extend(completions.map(|entry| Raw {
                tag: entry.user_data(),
                result: entry.result(),
                flags: entry.flags(),
            }));
            // What did not fit is kept by the kernel until it is asked again.
            if !self.queues.submission().cq_overflow() || self.queues.submit().is_err() {
                break;
            }
        }
        for at in first..self.done.len() {
            let Raw { tag, result, .. } = self.done[at];
            if operation(tag) == Operation::Short && (result >= 0 || result == -libc::EAGAIN) {
                let direct = tag as u32;
                let rest = self.memory.texts.rest((tag >> 40) as u32, result.max(0) as usize);
                self.send_block(direct, &rest)?;
                self.held.push(direct);
            }
        }
        let queue = self.queues.submission();
        if queue.is_empty() && !queue.cq_overflow() {
            drop(queue);
            self.memory.texts.forget();
        }
        Ok(())
    }

    /// Sockets of which a send that was not to be told of turned out to need time: it is told now.
    pub fn held(&self) -> &[u32] {
        &self.held
    }

    /// True if nothing is queued.
    pub fn submitted(&mut self) -> bool {
        self.queues.submission().is_empty()
    }

    /// The next completion; `None`: wait again.
    #[expect(clippy::should_implement_trait, reason = "bytes go with an item until the next")]
    pub fn next(&mut self) -> Option<Completion> {
        if let Some((buffer, ..)) = self.current.take() {
            self.memory.buffers.give(buffer);
        }
        loop {
            let Raw { tag, result, flags } = self.done.pop_front()?;
            let mut operation = operation(tag);
            match operation {
                Operation::Send => self.memory.texts.release((tag >> 40) as u32),
                // Here only failures are left: the rest of the others is on its way.
                Operation::Short if result >= 0 || result == -libc::EAGAIN => continue,
                Operation::Short => operation = Operation::Send,
                _ => {}
            }
            let mut completion = Completion {
                direct: tag as u32,
                operation,
                result: u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)),
                more: cqueue::more(flags),
                stamp_ns: 0,
            };
            if let Some(buffer) = cqueue::buffer_select(flags) {
                self.open_buffer(buffer, result.max(0) as usize, &mut completion);
            }
            return Some(completion);
        }
    }

    /// Finds bytes and stamp in a buffer.
    fn open_buffer(&mut self, buffer: u16, length: usize, completion: &mut Completion) {
        let whole = self.memory.buffers.filled(buffer, length);
        self.current = Some((buffer, 0, length));
        if !self.stamps || completion.result.is_err() {
            return;
        }
        match RecvMsgOut::parse(whole, &self.memory.head) {
            Ok(message) => {
                let payload = message.payload_data();
                let begin = payload.as_ptr() as usize - whole.as_ptr() as usize;
                self.current = Some((buffer, begin, begin + payload.len()));
                completion.result = Ok(payload.len() as u32);
                completion.stamp_ns = stamp_ns(message.control_data());
            }
            Err(()) => completion.result = Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The bytes of the last completion, if it was a receive.
    pub fn received(&self) -> &[u8] {
        self.current.map_or(&[], |(buffer, begin, end)| {
            self.memory.buffers.filled(buffer, end).get(begin..).unwrap_or_default()
        })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Closes that were asked for.
        let _ = self.queues.submit();
        let limit = Some(Timespec::new().sec(1));
        let cancelled = self.queues.submitter().register_sync_cancel(limit, CancelBuilder::any());
        let quiet = cancelled.map_or_else(|e| e.raw_os_error() == Some(libc::ENOENT), |()| true);
        // SAFETY: neither is used again. The memory goes after the ring, and only if nothing that
        // might still use it is under way; otherwise it is left to the end of the process.
        unsafe {
            ManuallyDrop::drop(&mut self.queues);
            if quiet {
                ManuallyDrop::drop(&mut self.memory);
            }
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("direct", &self.direct).finish_non_exhaustive()
    }
}

/// The receive stamp of a control message, ns on `CLOCK_REALTIME`; 0: there is none.
fn stamp_ns(control: &[u8]) -> u64 {
    let start = size_of::<libc::cmsghdr>().next_multiple_of(size_of::<usize>());
    if control.len() < start + size_of::<libc::timespec>() {
        return 0;
    }
    // SAFETY: the slice is long enough for a header and, behind it, a time; any bytes are valid.
    unsafe {
        let header: libc::cmsghdr = control.as_ptr().cast::<libc::cmsghdr>().read_unaligned();
        if (header.cmsg_level, header.cmsg_type) != (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
            return 0;
        }
        let time = control.as_ptr().add(start).cast::<libc::timespec>().read_unaligned();
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}
