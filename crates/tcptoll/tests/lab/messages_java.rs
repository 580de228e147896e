//! `messages --program java`: two JVMs, what each counts, and what the wire says of it.

use std::path::PathBuf;

use tcptoll_model::experiments::messages::{CALLS, RATE};

use crate::support::{Folder, TOLERANCE, checked_summary, lacks, no_lab, run, tcptoll};

/// The folder of a program, found as the program is.
fn folder_of(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find(|folder| folder.join(program).is_file())
}

#[test]
fn every_message_between_two_jvms_arrives_whole_in_each_encoding() {
    if lacks(&["java"]) {
        return;
    }
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mut command = tcptoll(&["messages", "--quiet", "--format", "json", "--out", &record]);
    command.args(["--link-tolerance", TOLERANCE, "--seed", "1", "--rounds", "1"]);
    // A rate at which the tap loses nothing.
    command.args(["--link", "rate=50mbit", "--tap", "--message", "1K", "--program", "java"]);
    command.args(["--encoding", "raw,serialization", "--warmup", "200ms", "--duration", "200ms"]);
    let ran = run(&mut command);
    assert!(matches!(ran.status, Some(0 | 1)), "{:?}: {}", ran.status, ran.stderr);
    let summary = checked_summary(&ran.stdout);
    assert_eq!(summary.arms.len(), 2);
    for (arm, encoding) in summary.arms.iter().zip(["raw", "serialization"]) {
        let message = arm.own.message.as_ref().unwrap();
        assert_eq!(message.encoding.as_deref(), Some(encoding));
        assert!(arm.errors.is_empty() && arm.ok == arm.attempts && arm.ok > 100, "{arm:?}");
        let up = arm.own.transfer.as_ref().unwrap().up.as_ref().unwrap();
        assert_eq!(up.messages, arm.ok, "the receiver's messages are the sender's");
        assert_eq!(up.sent_bytes, up.received_bytes);
        assert_eq!(up.wire_bytes, Some(up.sent_bytes), "{encoding}");
        assert_eq!((up.send_calls, arm.metrics[CALLS.name].value), (up.messages, 1.0));
        assert!(arm.metrics[RATE.name].value > 100.0);
        let each = message.encoded_bytes.unwrap();
        match encoding {
            // The content is all there is.
            "raw" => assert_eq!(each, 1_024.0),
            // The class is described in each message.
            _ => assert!(each > 1_050.0 && each < 1_300.0, "{each}"),
        }
    }
}

#[test]
fn without_a_jdk_the_package_is_named_and_nothing_was_measured() {
    if no_lab() {
        return;
    }
    // Whatever else the lab starts is found where it always is, but not next to java.
    let folder = Folder::new();
    for program in ["sh", "true"] {
        let Some(found) = folder_of(program) else { continue };
        std::os::unix::fs::symlink(found.join(program), folder.file(program)).unwrap();
    }
    let record = folder.path("record.jsonl");
    let mut command = tcptoll(&["messages", "--quiet", "--out", &record, "--program", "java"]);
    let ran = run(command.env("PATH", folder.0.path()));
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
    assert_eq!(ran.stderr, "error: java is not installed: apt-get install default-jdk-headless\n");
}
