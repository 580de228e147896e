//! A chat server that survives pulled cables: what one says, all others hear.
//!
//! Each peer has a thread that receives. A peer whose cable is pulled sends nothing more, not even
//! an end; the heartbeat finds out, the thread ends, and the others are told. A peer that does not
//! read delays nobody for longer than the heartbeat's bound: then it is dead, too.
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
    let timing = Timing { idle: Duration::from_secs(10), answer_within: Duration::from_secs(5) };
    // A chat is of no use to a peer whose program hangs: it has to answer itself.
    let options =
        Options { timing, evidence: Evidence::Answered, longest: 4_096, ..Options::default() };
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
        let (stream, address) = listener.accept()?;
        let peers = Arc::clone(&peers);
        thread::spawn(move || {
            let ended = match Connection::new(stream, options) {
                Ok(mut connection) => chat(&mut connection, address, &peers),
                Err(error) => Err(error),
            };
            let why = ended.err().map_or("it left".to_owned(), |error| error.to_string());
            peers.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
            println!("{address} is gone: {why}");
            say(&peers, address, &format!("{address} is gone"));
        });
    }
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

/// Tells all but the one who said it.
fn say(peers: &Peers, from: SocketAddr, text: &str) {
    let others: Vec<Sender> = {
        let peers = peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.iter().filter(|(address, _)| **address != from).map(|(_, s)| s.clone()).collect()
    };
    for other in others {
        // One that is gone is noticed by the thread that receives from it.
        let _gone = other.send(text.as_bytes());
    }
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
