//! The least that a request of one byte and its answer take: two programs of a dozen lines over
//! sockets that block.
//!
//! They time each exchange and do nothing else. The example runs itself with a hidden word to be one
//! of them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tcptoll_kernel::cpu::thread_time;

/// The hidden words.
const ASK: &str = "bare-ask";
const ANSWER: &str = "bare-answer";

/// Exchanges before those that are timed: of the connection's first, ACKs are not delayed.
const WARM_UP: u32 = 1_000;

/// The command that answers on this address.
pub(crate) fn answering(at: SocketAddr) -> anyhow::Result<String> {
    Ok(format!("{} {ANSWER} {at}", itself()?))
}

/// The command that asks for so many seconds.
pub(crate) fn asking(at: SocketAddr, seconds: u64) -> anyhow::Result<String> {
    Ok(format!("{} {ASK} {at} {seconds}", itself()?))
}

fn itself() -> anyhow::Result<String> {
    let path = std::env::current_exe().context("the path of this program")?;
    Ok(format!("'{}'", path.display()))
}

/// Is one of the two programs, if the arguments say so.
pub(crate) fn is_asked_for(words: &[String]) -> Option<anyhow::Result<()>> {
    match words {
        [word, at] if word == ANSWER => Some(answer(at)),
        [word, at, seconds] if word == ASK => Some(ask(at, seconds)),
        _ => None,
    }
}

/// Answers one connection after another, until it is killed.
fn answer(at: &str) -> anyhow::Result<()> {
    let listener = TcpListener::bind(at).with_context(|| at.to_owned())?;
    loop {
        let (mut connection, _) = listener.accept()?;
        connection.set_nodelay(true)?;
        let mut byte = [0];
        while connection.read(&mut byte).is_ok_and(|length| length == 1) {
            if connection.write(&byte).is_err() {
                break;
            }
        }
    }
}

fn ask(at: &str, seconds: &str) -> anyhow::Result<()> {
    let long = Duration::from_secs(seconds.parse().context("seconds")?);
    let mut connection = TcpStream::connect(at).with_context(|| at.to_owned())?;
    connection.set_nodelay(true)?;
    for _ in 0..WARM_UP {
        exchange(&mut connection)?;
    }
    let cpu = thread_time();
    let (begun, mut exchanges, mut sum) = (Instant::now(), 0_u64, Duration::ZERO);
    while begun.elapsed() < long {
        sum += exchange(&mut connection)?;
        exchanges += 1;
    }
    let used = thread_time().since(cpu);
    println!("{exchanges} {} {}", sum.as_nanos(), used.user_us + used.system_us);
    Ok(())
}

/// One byte there and one back.
fn exchange(connection: &mut TcpStream) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    if connection.write(b"r")? != 1 || connection.read(&mut [0])? != 1 {
        bail!("the other end closed");
    }
    Ok(begun.elapsed())
}

/// What the asking program printed: exchanges, mean round trip in µs, its CPU time in µs.
pub(crate) fn read(output: &str) -> Option<(u64, f64, u64)> {
    let mut words = output.split_whitespace().map(str::parse::<u64>);
    let mut next = || words.next()?.ok();
    let (exchanges, sum_ns, cpu_us) = (next()?, next()?, next()?);
    (exchanges > 0).then(|| (exchanges, sum_ns as f64 / 1e3 / exchanges as f64, cpu_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_programs_exchange_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        drop(listener);
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let answering = words(&format!("bare-answer {at}"));
        std::thread::spawn(move || is_asked_for(&answering).unwrap());
        let mut asked = Err(anyhow::anyhow!("never"));
        // Until the other one listens.
        for _ in 0..10_000 {
            asked = is_asked_for(&words(&format!("bare-ask {at} 0"))).unwrap();
            if asked.is_ok() {
                break;
            }
            std::thread::yield_now();
        }
        asked.unwrap();
        assert!(is_asked_for(&words("stream")).is_none());
        assert_eq!(read("2 9000 7\n"), Some((2, 4.5, 7)));
        assert_eq!(read("0 0 0"), None);
        assert_eq!(read("error"), None);
    }
}
