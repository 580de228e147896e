//! Sysctls of either host: do they take effect, and does one without effect say so?

use crate::support::{connect, no_lab, only, refused, run, tcptoll};

#[test]
fn somaxconn_caps_the_backlog_and_both_are_read_back() {
    if no_lab() {
        return;
    }
    let sysctl = "net.core.somaxconn=8";
    let summary = connect(&["--server-sysctl", sysctl, "--backlog", "100", "--count", "20"]);
    let server = only(&summary).server.as_ref().unwrap();
    assert_eq!(server.sysctls["net.core.somaxconn"], "8");
    assert_eq!(server.listeners[0].accept_queue_limit, 8);
}

#[test]
fn the_ladder_follows_the_client_s_own_sysctls() {
    if no_lab() {
        return;
    }
    let ladder = |linear: &str| {
        let linear = format!("net.ipv4.tcp_syn_linear_timeouts={linear}");
        let retries = "net.ipv4.tcp_syn_retries=3";
        let args = ["--client-sysctl", retries, "--client-sysctl", linear.as_str(), "--count", "5"];
        only(&connect(&args)).syn_retry_ladder_s.clone()
    };
    if !std::path::Path::new("/proc/sys/net/ipv4/tcp_syn_linear_timeouts").exists() {
        eprintln!("SKIPPED (lab): this kernel is older than tcp_syn_linear_timeouts");
        return;
    }
    assert_eq!(ladder("0"), [1.0, 3.0, 7.0]);
    // The linear ones come on top of the retries that double.
    assert_eq!(ladder("4")[..5], [1.0, 2.0, 3.0, 4.0, 5.0]);
}

#[test]
fn a_sysctl_that_cannot_take_effect_is_refused_by_name_on_either_host() {
    if no_lab() {
        return;
    }
    for side in ["--client-sysctl", "--server-sysctl"] {
        for (sysctl, name) in [
            ("net.ipv4.no_such_thing=1", "net.ipv4.no_such_thing"),
            ("kernel.pid_max=5000", "kernel.pid_max"),
            ("vm.swappiness=1", "vm.swappiness"),
            ("net.core.rmem_max=1", "net.core.rmem_max"),
            ("net.ipv4.tcp_syncookies=many", "net.ipv4.tcp_syncookies"),
            ("net.ipv4/../../kernel/pid_max=5000", "pid_max"),
        ] {
            let error = refused(&[side, sysctl, "--count", "5"]);
            assert!(error.contains(name), "{sysctl}: {error}");
        }
    }
}

#[test]
fn the_lab_command_sets_each_host_s_sysctls_apart() {
    if no_lab() {
        return;
    }
    let line = "cat /proc/sys/net/core/somaxconn";
    for (side, shown) in [("--client-sysctl", "77\n"), ("--server-sysctl", "4096\n")] {
        let args = ["lab", "--quiet", side, "net.core.somaxconn=77", "--", "sh", "-c", line];
        let ran = run(&mut tcptoll(&args));
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(0), shown), "{}", ran.stderr);
    }
}

#[test]
fn a_lab_whose_link_is_out_of_tolerance_warns_and_goes_on_unless_a_tolerance_was_given() {
    if no_lab() {
        return;
    }
    // No machine carries 20 Gbit/s of packets of 1400 bytes through one process.
    let lab = |more: &[&str]| {
        let mut command = tcptoll(&["lab", "--quiet", "--link", "rtt=1ms,rate=20gbit"]);
        run(command.args(more).args(["--", "sh", "-c", "exit 7"]))
    };
    let went_on = lab(&[]);
    assert_eq!(went_on.status, Some(7), "{}", went_on.stderr);
    assert!(went_on.stderr.contains("warning: the link"), "{}", went_on.stderr);
    let refused = lab(&["--link-tolerance", "rate=2%"]);
    assert_eq!(refused.status, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("error: the link"), "{}", refused.stderr);
}
