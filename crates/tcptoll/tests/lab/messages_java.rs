//! `messages --program java`: two JVMs, what each counts, and what the wire says of it.

use tcptoll_core::record::Buffer;
use tcptoll_measure::carry::messages::{CALLS, RATE};

use crate::support::{Folder, TOLERANCE, checked_summary, lacks, no_lab, run, tcptoll};

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
    command.args(["--window", "64K"]);
    let ran = run(&mut command);
    assert!(matches!(ran.status, Some(0 | 1)), "{:?}: {}", ran.status, ran.stderr);
    let summary = checked_summary(&ran.stdout);
    assert_eq!(summary.arms.len(), 2);
    for (arm, encoding) in summary.arms.iter().zip(["raw", "serialization"]) {
        let message = arm.own.message.as_ref().unwrap();
        assert_eq!(message.encoding.as_deref(), Some(encoding));
        assert!(arm.errors.is_empty() && arm.ok == arm.attempts && arm.ok > 10, "{arm:?}");
        let transfer = arm.own.transfer.as_ref().unwrap();
        for end in [&transfer.client, &transfer.server] {
            // As for any program, the kernel doubles what is asked for.
            assert_eq!(end.send_buffer, Buffer::new(Some(65_536), 131_072));
            assert_eq!(end.receive_buffer, Buffer::new(Some(65_536), 131_072));
        }
        let up = transfer.up.as_ref().unwrap();
        assert_eq!(up.messages, arm.ok, "the receiver's messages are the sender's");
        assert_eq!(up.sent_bytes, up.received_bytes);
        // On a busy machine the tap may miss packets, and says so.
        if summary.warnings.iter().all(|warning| warning.id != "tap-drops") {
            assert_eq!(up.wire_bytes, Some(up.sent_bytes), "{encoding}");
        }
        assert_eq!((up.send_calls, arm.metrics[CALLS.name].value), (up.messages, 1.0));
        assert!(arm.metrics[RATE.name].value > 10.0);
        let each = message.encoded_bytes.unwrap();
        match encoding {
            // The content is all there is.
            "raw" => assert!((each - 1_024.0).abs() < f64::EPSILON, "{each}"),
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
    // No program is found there. The lab needs none.
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mut command = tcptoll(&["messages", "--quiet", "--out", &record, "--program", "java"]);
    let ran = run(command.env("PATH", folder.0.path()));
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
    assert_eq!(ran.stderr, "error: java is not installed: apt-get install default-jdk-headless\n");
}
