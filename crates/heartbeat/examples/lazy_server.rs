//! A server that has room for a few peers, and tests them only when more come.
//!
//! While there is room it has no timer and sends nothing on its own. Who comes to a full house waits
//! in the kernel's backlog until the least recently used are tested and a dead one is found. The
//! test is an empty line: the protocol's own Null, acknowledged by the peer's kernel.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use tcp_heartbeat::{Evidence, Member, Null, Reaper, ReaperStep, Reaping, kernel};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

const HELP: &str = "\
A server that tests its peers only when more come than it has room for

Usage: lazy_server [--listen ADDRESS] [--most N] [--answer-within SECONDS]

  --listen ADDRESS         where to listen [127.0.0.1:0, any free port; printed]
  --most N                 peers there is room for [100]
  --answer-within SECONDS  a peer that does not acknowledge by then is gone [5]";

/// How long no more are accepted after an error: the usual one, no descriptor left, lasts until a
/// connection is closed.
const PAUSE: Duration = Duration::from_millis(100);

/// What a peer's task tells the server.
enum News {
    Used(Member),
    Ended(Member),
}

/// A peer: its place in the reaper, and the half of its socket that writes.
struct Peer {
    member: Member,
    writer: OwnedWriteHalf,
    address: SocketAddr,
    reader: tokio::task::JoinHandle<()>,
}

struct Server {
    started: Instant,
    reaper: Reaper<usize>,
    /// By the key that the reaper knows them by.
    peers: Vec<Option<Peer>>,
    null: Null,
    news: mpsc::Sender<News>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let outcome = match arguments() {
        Ok(None) => {
            println!("{HELP}");
            Ok(())
        }
        Ok(Some((listen, reaping))) => serve(listen, reaping).await,
        Err(text) => Err(io::Error::new(io::ErrorKind::InvalidInput, text)),
    };
    if let Err(error) = outcome {
        eprintln!("lazy_server: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// What was asked for; `None`: help.
fn arguments() -> Result<Option<(SocketAddr, Reaping)>, String> {
    let mut listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut reaping = Reaping::new(100);
    reaping.answer_within = Duration::from_secs(5);
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        if matches!(name.as_str(), "--help" | "-h") {
            return Ok(None);
        }
        let value = given.next().ok_or_else(|| format!("{name}: --help says more"))?;
        let wrong = || format!("{name}: {value} is not such a value");
        match name.as_str() {
            "--listen" => listen = value.parse().map_err(|_| wrong())?,
            "--most" => reaping.limit = value.parse().map_err(|_| wrong())?,
            "--answer-within" => {
                let seconds = value.parse().map_err(|_| wrong())?;
                reaping.answer_within =
                    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
            }
            _ => return Err(format!("{name}: no such option, see --help")),
        }
    }
    Ok(Some((listen, reaping)))
}

async fn serve(listen: SocketAddr, reaping: Reaping) -> io::Result<()> {
    let listener = TcpListener::bind(listen).await?;
    println!("listening on {}", listener.local_addr()?);
    let (news, mut arrived) = mpsc::channel(64);
    let mut server = Server {
        started: Instant::now(),
        reaper: Reaper::new(reaping),
        peers: Vec::new(),
        null: Null::new(b"\n", Evidence::Acknowledged),
        news,
    };
    // A connection beyond the room is taken off the backlog only to know that somebody waits; it is
    // the only one. All others wait in the kernel.
    let mut waiting: Option<(TcpStream, SocketAddr)> = None;
    let mut accept_from = Instant::now();
    loop {
        server.work();
        if server.reaper.has_room() {
            if let Some((stream, address)) = waiting.take() {
                server.take_in(stream, address);
                continue;
            }
        }
        if waiting.is_some() && !server.reaper.is_reaping() {
            server.reaper.room_wanted(server.started.elapsed());
            server.work();
        }
        let due = server.reaper.next_due().map(|due| server.started + due);
        let accept = async {
            sleep_until(accept_from).await;
            listener.accept().await
        };
        tokio::select! {
            accepted = accept, if waiting.is_none() => match accepted {
                Ok(accepted) => waiting = Some(accepted),
                Err(error) => {
                    eprintln!("accept: {error}");
                    accept_from = Instant::now() + PAUSE;
                }
            },
            Some(news) = arrived.recv() => server.hear(&news),
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
        }
    }
}

impl Server {
    fn take_in(&mut self, stream: TcpStream, address: SocketAddr) {
        let free = self.peers.iter().position(Option::is_none);
        let key = free.unwrap_or_else(|| {
            self.peers.push(None);
            self.peers.len() - 1
        });
        let (reader, writer) = stream.into_split();
        let member = self.reaper.insert(key, self.started.elapsed());
        let reader = tokio::spawn(read(member, reader, self.news.clone()));
        self.peers[key] = Some(Peer { member, writer, address, reader });
        println!("{address} is here, {} in all", self.reaper.len());
    }

    fn hear(&mut self, news: &News) {
        let (News::Used(member) | News::Ended(member)) = *news;
        // News of a peer that was closed meanwhile names nobody, though its key may be taken again.
        let Some(&key) = self.reaper.get(member) else { return };
        if matches!(news, News::Ended(_)) {
            self.close(key, "it ended");
            return;
        }
        self.reaper.used(member, self.started.elapsed());
        if let Some(peer) = &self.peers[key] {
            // An answer that a slow reader has no room for is dropped: this is an example.
            let _full = peer.writer.try_write(b"heard\n");
        }
    }

    /// Does all that the reaper asks for now.
    fn work(&mut self) {
        while let Some(step) = self.reaper.next(self.started.elapsed()) {
            let (ReaperStep::Test(member, key)
            | ReaperStep::Look(member, key)
            | ReaperStep::Judge(member, key)) = step;
            let Some(peer) = &self.peers[key] else { continue };
            let sent = match step {
                ReaperStep::Test(..) => peer.writer.try_write(&self.null.bytes).map(|_| false),
                _ => kernel::unacknowledged(peer.writer.as_ref()).map(|bytes| bytes == 0),
            };
            match (sent, step) {
                (Ok(true), _) => self.reaper.acknowledged(member),
                (Ok(false), ReaperStep::Judge(..)) => self.close(key, "it does not acknowledge"),
                // A full socket is unacknowledged, and so a test already.
                (Ok(false), _) => {}
                (Err(error), _) if error.kind() == io::ErrorKind::WouldBlock => {}
                (Err(error), _) => self.close(key, &error.to_string()),
            }
        }
    }

    fn close(&mut self, key: usize, why: &str) {
        let Some(peer) = self.peers[key].take() else { return };
        peer.reader.abort();
        self.reaper.remove(peer.member);
        println!("{} is gone: {why}; {} in all", peer.address, self.reaper.len());
    }
}

/// Tells of each piece that arrives.
async fn read(member: Member, reader: OwnedReadHalf, news: mpsc::Sender<News>) {
    let mut piece = [0; 1_024];
    loop {
        let arrived = match reader.readable().await.and_then(|()| reader.try_read(&mut piece)) {
            Ok(0) => News::Ended(member),
            Ok(_) => News::Used(member),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => News::Ended(member),
        };
        let ended = matches!(arrived, News::Ended(_));
        if news.send(arrived).await.is_err() || ended {
            return;
        }
    }
}
