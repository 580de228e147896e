//! Feeds damaged and random bytes to decoders and sessions, and compares with the description of
//! the format.
//!
//! `cargo run --release --example fuzz -- 1000000`; it panics where they differ, and the status is 1
//! if memory was not bounded.

mod hostile;

use std::process::ExitCode;

fn main() -> ExitCode {
    let inputs = match std::env::args().nth(1).map(|count| count.parse::<u64>()) {
        None => 100_000,
        Some(Ok(inputs)) => inputs,
        Some(Err(_)) => {
            eprintln!("fuzz [INPUTS]: how many inputs to try (100000)");
            return ExitCode::from(2);
        }
    };
    let mut all = hostile::Attempts::default();
    for seed in 0..inputs {
        all.add(hostile::run(seed));
    }
    let hostile::Attempts { inputs, bytes, frames, refused, decoder, session } = all;
    println!("inputs {inputs}, bytes {bytes}, frames {frames}, refused {refused}");
    println!("largest memory against its bound: decoder {decoder:.3}, session {session:.3}");
    if all.is_bounded() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
