//! A chat server that survives pulled cables: what one says, all others hear.
//!
//! Each peer has a thread that receives. A peer whose cable is pulled sends nothing more, not even
//! an end; the heartbeat finds out, the thread ends, and the others are told. That thread never waits
//! for another peer, or it would be late to answer its own: one that reads more slowly than the
//! others talk is shut out as soon as its queue is full.
//!
//! Messages are frames of `tcp_heartbeat::frame`; `chat_server --join ADDRESS` is a client.

use std::collections::HashMap;
use std::io::{self, BufRead as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tcp_heartbeat::blocking::{Connection, Sender};
use tcp_heartbeat::{Evidence, Options, Timing};

const HELP: &str = "\
A chat server that survives pulled cables

Usage: chat_server [--listen ADDRESS] [--idle SECONDS] [--answer-within SECONDS]
       chat_server --join ADDRESS

  --listen ADDRESS         where to listen [127.0.0.1:0, any free port; printed]
  --join ADDRESS           be a client: lines of the standard input are said
  --idle SECONDS           ask a peer that has said nothing for so long [10]
  --answer-within SECONDS  a peer that does not answer by then is gone [5]";

/// How long nobody is accepted after an error: the usual one, no descriptor left, lasts until a
/// connection is closed.
const PAUSE: Duration = Duration::from_millis(100);

type Peers = Arc<Mutex<HashMap<SocketAddr, Sender>>>;

fn main() -> ExitCode {
    let outcome = arguments().and_then(|arguments| match arguments {
        None => {
            println!("{HELP}");
            Ok(())
        }
        Some(Arguments { join: Some(address), options, .. }) => join(address, options),
        Some(Arguments { listen, options, .. }) => serve(listen, options),
    });
    if let Err(error) = outcome {
        eprintln!("chat_server: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

struct Arguments {
    listen: SocketAddr,
    join: Option<SocketAddr>,
    options: Options,
}

/// What was asked for; `None`: help.
fn arguments() -> io::Result<Option<Arguments>> {
    let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    let seconds = |text: &str| {
        let seconds = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
        seconds.ok_or_else(|| wrong(format!("{text}: not a number of seconds")))
    };
    let address =
        |text: &str| text.parse().map_err(|_| wrong(format!("{text}: not an address and port")));
    let mut options = Options::default();
    options.timing = Timing::new(Duration::from_secs(10), Duration::from_secs(5));
    // A chat is of no use to a peer whose program hangs: it has to answer itself.
    options.evidence = Evidence::Answered;
    options.max_message_len = 4_096;
    let mut arguments = Arguments { listen: ([127, 0, 0, 1], 0).into(), join: None, options };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        if matches!(name.as_str(), "--help" | "-h") {
            return Ok(None);
        }
        let value = given.next().ok_or_else(|| wrong(format!("{name}: --help says more")))?;
        match name.as_str() {
            "--listen" => arguments.listen = address(&value)?,
            "--join" => arguments.join = Some(address(&value)?),
            "--idle" => arguments.options.timing.idle = seconds(&value)?,
            "--answer-within" => arguments.options.timing.answer_within = seconds(&value)?,
            _ => return Err(wrong(format!("{name}: no such option, see --help"))),
        }
    }
    Ok(Some(arguments))
}

fn serve(listen: SocketAddr, options: Options) -> io::Result<()> {
    let listener = TcpListener::bind(listen)?;
    println!("listening on {}", listener.local_addr()?);
    let peers = Peers::default();
    loop {
        let peers = Arc::clone(&peers);
        let welcomed = listener.accept().and_then(|(stream, address)| {
            thread::Builder::new().spawn(move || welcome(stream, address, options, &peers))
        });
        if let Err(error) = welcomed {
            eprintln!("nobody can be taken in: {error}");
            thread::sleep(PAUSE);
        }
    }
}

/// Stays with one peer until it is gone.
fn welcome(stream: TcpStream, address: SocketAddr, options: Options, peers: &Peers) {
    let ended = match Connection::new(stream, options) {
        Ok(mut connection) => chat(&mut connection, address, peers),
        Err(error) => Err(error),
    };
    let why = ended.err().map_or("it left".to_owned(), |error| error.to_string());
    peers.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
    println!("{address} is gone: {why}");
    say(peers, address, &format!("{address} is gone"));
}

/// Passes on what one peer says until it ends.
fn chat(connection: &mut Connection, address: SocketAddr, peers: &Peers) -> io::Result<()> {
    let sender = connection.sender();
    peers.lock().unwrap_or_else(PoisonError::into_inner).insert(address, sender);
    say(peers, address, &format!("{address} is here"));
    while let Some(message) = connection.receive()? {
        say(peers, address, &format!("{address}: {}", String::from_utf8_lossy(&message)));
    }
    Ok(())
}

/// Tells all but the one who said it, and waits for none of them.
fn say(peers: &Peers, from: SocketAddr, text: &str) {
    let mut peers = peers.lock().unwrap_or_else(PoisonError::into_inner);
    peers.retain(|&address, other| {
        let told = address == from || matches!(other.try_send(text.as_bytes()), Ok(true));
        if !told {
            // Its queue is full, or it is gone. The thread that receives from it ends.
            other.abort();
        }
        told
    });
}

fn join(address: SocketAddr, options: Options) -> io::Result<()> {
    let mut connection = Connection::new(TcpStream::connect(address)?, options)?;
    let sender = connection.sender();
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            if line.and_then(|line| sender.send(line.as_bytes())).is_err() {
                return;
            }
        }
        let _gone = sender.finish();
    });
    while let Some(message) = connection.receive()? {
        println!("{}", String::from_utf8_lossy(&message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_does_not_read_delays_nobody_and_is_shut_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _deaf = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, address) = listener.accept().unwrap();
        // Who waited for it would wait for two days.
        let day = Duration::from_secs(86_400);
        let mut options = Options::default();
        options.timing = Timing::new(day, day);
        options.evidence = Evidence::Answered;
        let mut connection = Connection::new(stream, options).unwrap();
        let peers = Peers::default();
        peers.lock().unwrap().insert(address, connection.sender());
        let other = ([127, 0, 0, 1], 1).into();
        while !peers.lock().unwrap().is_empty() {
            say(&peers, other, &"x".repeat(4_000));
        }
        connection.receive().unwrap_err();
    }
}
