//! Does `doctor` find the planted fault of a machine, nothing else, and nothing on a healthy one?
//!
//! Some machines only: `cargo xtask prove doctor-twelve` has all.

use std::process::Command;

use tcptoll_live::doctor::ProofVerdict;

use crate::machines::{KINDS, Kind, Machine};
use crate::support::{Folder, lacks, run, tcptoll};

/// The machine of this name.
fn named(name: &str) -> &'static Kind {
    KINDS.iter().find(|kind| kind.name == name).expect("it is in the table")
}

/// Whether the tools of all machines, or these programs, are not here.
fn lacks_machines(programs: &[&str]) -> bool {
    lacks(&[&["unshare", "python3", "ip"], programs].concat())
}

/// The planted fault is found, alone; its healthy twin has none.
fn finds(name: &str) {
    let kind = named(name);
    if lacks_machines(kind.programs) {
        return;
    }
    for planted in [true, false] {
        let machine = Machine::start(kind, planted).unwrap();
        let examined = machine.examine(tcptoll(&[]), &["--duration", "2s"]).unwrap();
        let expected = if planted { kind.expected() } else { Vec::new() };
        let findings = &examined.examination.findings;
        assert_eq!(examined.found(), expected, "planted: {planted}: {findings:#?}");
        assert_eq!(examined.status, Some(i32::from(planted)), "{}", examined.stderr);
        for one in findings {
            assert!(!one.evidence.is_empty() && one.text.chars().count() <= 120, "{one:?}");
        }
    }
}

#[test]
fn a_stuck_redis_overflows_its_queue() {
    finds("accept-queue-full");
}

#[test]
fn apache_closes_before_the_nginx_in_front_of_it() {
    finds("close-race");
}

#[test]
fn gunicorn_closes_before_the_nginx_in_front_of_it() {
    finds("close-race-gunicorn");
}

#[test]
fn node_closes_before_the_nginx_in_front_of_it() {
    finds("close-race-node");
}

#[test]
fn puma_closes_before_the_nginx_in_front_of_it() {
    finds("close-race-puma");
}

#[test]
fn haproxy_asks_for_more_buffer_than_the_kernel_allows() {
    finds("buffers-over-cap");
}

#[test]
fn clients_behind_a_gateway_are_never_probed() {
    finds("keepalive-beyond-nat");
}

#[test]
fn local_ports_run_low_towards_one_database() {
    finds("local-ports-scarce");
}

#[test]
fn a_finding_of_another_namespace_is_proven_in_a_lab_of_the_caller() {
    let kind = named("upstream-not-reused");
    if lacks_machines(kind.programs) {
        return;
    }
    let folder = Folder::new();
    let machine = Machine::start(kind, true).unwrap();
    let mut command = tcptoll(&[]);
    command.env("XDG_DATA_HOME", folder.file(""));
    let examined = machine.examine(command, &["--duration", "1s", "--prove"]).unwrap();
    assert_eq!(examined.status, Some(1), "{}", examined.stderr);
    let [proof] = &examined.examination.proofs[..] else { panic!("{}", examined.stderr) };
    assert_eq!(proof.finding, kind.name);
    // Whether the factor of two is sure after six rounds depends on the machine.
    assert_ne!(proof.verdict, ProofVerdict::NotRun, "{}", proof.text);
    let (pid, name) = (machine.pid.to_string(), kind.name);
    assert_eq!(proof.command, ["tcptoll", "doctor", "--netns", &pid, "--prove", name]);
    let [ill, fixed] = &proof.arms[..] else { panic!("{proof:?}") };
    assert_eq!(ill.name, "as it is");
    assert!(ill.attempts > 0 && fixed.attempts > 0, "{proof:?}");
    assert_eq!((ill.failed, fixed.failed), (0, 0), "{proof:?}");
    let [fix] = &proof.fixes[..] else { panic!("{proof:?}") };
    assert_eq!((fix.arm.as_str(), fix.metric.as_str()), ("HTTP/1.1", "latency_us_mean"));
    let record = proof.record.as_deref().unwrap();
    let report = run(&mut tcptoll(&["report", record]));
    assert_eq!(report.status, Some(0), "{}", report.stderr);
}

#[test]
fn without_a_lab_a_finding_is_not_proven_and_the_status_says_so() {
    let kind = named("local-ports-scarce");
    if lacks_machines(&["nsenter"]) {
        return;
    }
    let machine = Machine::start(kind, true).unwrap();
    // In its user namespace no further network may be made.
    let pid = machine.pid.to_string();
    let none = "echo 0 > /proc/sys/user/max_net_namespaces && exec \"$0\" \"$@\"";
    let mut command = Command::new("nsenter");
    command.args(["--target", &pid, "--user", "--preserve-credentials", "sh", "-c", none]);
    command.arg(tcptoll(&[]).get_program());
    let examined = machine.examine(command, &["--duration", "1s", "--prove"]).unwrap();
    let [proof] = &examined.examination.proofs[..] else { panic!("{}", examined.stderr) };
    assert_eq!(proof.verdict, ProofVerdict::NotRun);
    assert!(proof.text.starts_with("The lab did not run: "), "{}", proof.text);
    assert_eq!(examined.status, Some(2), "{}", examined.stderr);
}

#[test]
fn a_finding_that_the_lab_cannot_hold_is_refused_with_its_reason() {
    let ran = run(&mut tcptoll(&["doctor", "--prove", "retransmissions"]));
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.contains("no setting of this host does"), "{}", ran.stderr);
}
