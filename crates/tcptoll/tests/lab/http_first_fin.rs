//! Who closed first, and whose TIME-WAIT: is it what the packets say, and what `ss` says?

use std::path::Path;

use tcptoll_core::record::{Arm, Summary};

use crate::first_fin::FirstFins;
use crate::http::{closing, load};
use crate::http_closing::time_wait;
use crate::support::{Folder, TOLERANCE, lacks, only, run, tcptoll};

const WAYS: [&str; 4] = ["keep-alive", "server-close", "client-close", "requests=10"];

/// A server that closes after each response, whatever it is asked for: its FIN and the client's
/// meet.
const APPLICATION: &str = r#"
def application(environ, start_response):
    start_response("200 OK", [("Content-Length", "5")])
    return [b"hello"]
"#;

/// Gunicorn with one synchronous worker.
fn gunicorn(folder: &Folder, at: &str) -> String {
    std::fs::write(folder.file("hello.py"), APPLICATION).unwrap();
    // The server of a lab is an ordinary user.
    let path = folder.0.path();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, mode).unwrap();
    format!(
        "cd {} && exec gunicorn --log-level critical --bind {at} hello:application",
        path.display()
    )
}

/// A load whose capture and whose counts must be the same.
fn as_the_packets(server: &str, port: u16, reuse: &str, io: &str) -> Arm {
    let folder = Folder::new();
    let capture = folder.path("run.pcapng");
    let summary = load(&[
        "--server",
        server,
        "--reuse",
        reuse,
        "--io",
        io,
        "--link",
        "rtt=1ms",
        "--link-tolerance",
        TOLERANCE,
        "--rounds",
        "1",
        "--connections",
        "4",
        "--requests",
        "200",
        "--warmup",
        "0",
        "--ramp",
        "0",
        "--pcap",
        &capture,
    ])
    .summary;
    let arm = only(&summary);
    let wire = FirstFins::read(Path::new(&capture), port).unwrap();
    let told = closing(arm);
    let name = format!("{reuse} over {io}: {told:?} and {:?} against {wire:?}", time_wait(arm));
    assert_eq!(wire.without, 0, "{name}");
    // What was open at the end the client closes first: the server has no reason to.
    let by_client = told.by_client + told.open_at_end;
    assert_eq!((by_client, told.by_server), (wire.by_client, wire.by_server), "{name}");
    if told.both.is_none() {
        // A machine that was too busy to see every FIN, or to end every connection in time: nothing is
        // claimed of both.
        let mut held = time_wait(arm).into_iter().zip(wire.time_wait);
        assert!(held.all(|(ours, most)| ours.is_none_or(|ours| ours <= most)), "{name}");
        return arm.clone();
    }
    assert_eq!(told.both, Some(wire.both), "{name}");
    assert_eq!(time_wait(arm), wire.time_wait.map(Some), "{name}");
    arm.clone()
}

/// A load on a server of this machine, with others' sockets beside it.
#[test]
fn on_this_machine_time_wait_is_of_this_load_and_of_its_side() {
    if lacks(&["gunicorn", "ss"]) {
        return;
    }
    for (at, reuse) in [("127.0.0.1:8000", "server-close"), ("[::]:8000", "client-close")] {
        let folder = Folder::new();
        let server = gunicorn(&folder, at);
        let record = folder.path("record.jsonl");
        let load = |requests: u32, reuse: &str, out: &str| {
            format!(
                "{} http http://127.0.0.1:8000/ --quiet --format json --out {out} \
                 --connections 4 --warmup 0 --rounds 1 --requests {requests} --reuse {reuse}",
                env!("CARGO_BIN_EXE_tcptoll")
            )
        };
        let script = format!(
            "({server}) & for n in $(seq 600); do ss -Hltn sport = :8000 | grep -q . && break; sleep 0.05; done; \
             {} >/dev/null; before=$(ss -Htan state time-wait | wc -l); \
             {}; echo $before \
             $(ss -Htan state time-wait dport = :8000 | wc -l) \
             $(ss -Htan state time-wait sport = :8000 | wc -l)",
            load(50, "server-close", "/dev/null"),
            load(200, reuse, &record)
        );
        let ran = run(&mut tcptoll(&["lab", "--quiet", "--", "sh", "-c", &script]));
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
        let (json, counts) = ran.stdout.trim_end().rsplit_once('\n').unwrap();
        let summary: Summary = serde_json::from_str(json).unwrap();
        let arm = only(&summary);
        let counts: Vec<u64> = counts.split(' ').map(|count| count.parse().unwrap()).collect();
        let [before, on_client, on_server] = counts.try_into().unwrap();
        let told = closing(arm);
        let name = format!("{reuse}: {told:?} and {:?}", time_wait(arm));
        assert!(before > 0, "{name}: the first load left some");
        assert_eq!(told.closed() + told.open_at_end, arm.connections_ok.unwrap(), "{name}");
        let [ours, theirs] = time_wait(arm).map(Option::unwrap);
        let record = tcptoll_measure::record::Record::read(record.as_ref()).unwrap();
        if record.trials().count() > 1 {
            // A busy machine repeated the trial, and sockets of each attempt are there.
            assert!(ours <= on_client && theirs <= on_server, "{name}: {on_client}, {on_server}");
            continue;
        }
        // The first load's are all the server's; a new connection may have taken the place of some.
        assert_eq!(ours, on_client, "{name}");
        assert!(
            theirs <= on_server && on_server <= theirs + before,
            "{name}: {on_server}, {before}"
        );
        assert_eq!(told.by_server + on_client, arm.connections_ok.unwrap(), "{name}");
    }
}

/// Every FIN is seen: where the tap waits for a CPU, it loses some.
mod alone {
    use super::*;

    #[test]
    fn first_fins_are_those_of_the_packets_with_our_own_server() {
        if lacks(&["tcpdump"]) {
            return;
        }
        for reuse in WAYS {
            as_the_packets("null", 8080, reuse, "auto");
        }
    }

    #[test]
    fn first_fins_are_those_of_the_packets_where_the_server_closes_by_itself() {
        if lacks(&["tcpdump", "gunicorn"]) {
            return;
        }
        let folder = Folder::new();
        let server = gunicorn(&folder, "0.0.0.0:8000");
        for reuse in WAYS {
            let arm = as_the_packets(&server, 8000, reuse, "epoll");
            let told = closing(&arm);
            // Its FIN leaves with the response, half a round trip before the client's can.
            assert!(told.by_server > 0, "{reuse}: {told:?}");
            // What was worked out before is corrected by what was found.
            let text = &arm.ports.as_ref().unwrap().text;
            let by_all = told.by_server * 200 <= told.closed();
            assert_eq!(text.contains("the client closes first"), by_all, "{text}: {told:?}");
        }
        let arm = as_the_packets(&server, 8000, "client-close", "io-uring");
        assert!(closing(&arm).by_server > 0, "{:?}", closing(&arm));
    }
}
