//! The runs that are recorded: small ones, so that a conversation can be read.

/// A run of one arm that is recorded.
pub(super) struct Case {
    /// Of its files too.
    pub(super) name: &'static str,
    pub(super) experiment: &'static str,
    pub(super) settings: &'static [(&'static str, &'static str)],
}

/// The table of cases, and a test of each.
macro_rules! cases {
    ($($name:ident: $experiment:literal { $($option:literal: $value:literal,)* })*) => {
        pub(super) const CASES: &[Case] = &[$(Case {
            name: stringify!($name),
            experiment: $experiment,
            settings: &[$(($option, $value),)*],
        },)*];

        mod a_recorded_run_gives_its_trial_and_its_summary_again {
            $(#[test]
            fn $name() {
                super::super::gives_its_trial_and_its_summary_again(stringify!($name));
            })*
        }
    };
}

cases! {
    // The queue overflows: half-open requests are left, and whose SYN was dropped comes again.
    accept_queue: "accept-queue" {
        "link": "rtt=2ms",
        "backlog": "4",
        "accept-delay": "3ms",
        "rate": "2000",
        "count": "12",
        "timeout": "1500ms",
        "warmup": "2",
    }
    connect: "connect" {
        "link": "rtt=2ms",
        "count": "12",
        "concurrency": "2",
        "warmup": "2",
        "first-byte": "on",
    }
    http: "http" {
        "link": "rtt=2ms",
        "server": "null",
        "reuse": "server-close",
        "connections": "2",
        "requests": "30",
        "warmup": "4",
    }
    http_at_a_target: "http" {
        "url": "http://127.0.0.1:18765/",
        "connections": "2",
        "requests": "20",
        "warmup": "0",
    }
    keepalive: "keepalive" {
        "link": "rtt=2ms",
        "sockets": "5",
        "mechanism": "heartbeat",
        "idle": "100ms",
        "answer-within": "100ms",
        "warmup": "300ms",
        "duration": "1s",
        "rate": "20",
        "fault": "cut",
        "fault-share": "50%",
    }
    messages: "messages" {
        "link": "rtt=2ms",
        "pattern": "write-write-read",
        "message": "200",
        "warmup": "100ms",
        "duration": "200ms",
    }
    page: "page" {
        "link": "rtt=2ms",
        "server": "null",
        "keepalive": "on",
        "resources": "3",
        "loads": "2",
    }
    stream: "stream" {
        "link": "rtt=2ms",
        "message": "4K",
        "rate": "20mbit",
        "warmup": "100ms",
        "duration": "300ms",
    }
    // More SYNs than the queue holds.
    syn_queue: "syn-queue" {
        "link": "rtt=2ms",
        "backlog": "8",
        "syncookies": "0",
        "half-open": "full",
        "count": "10",
        "rate": "50",
        "timeout": "1500ms",
    }
    // More operations than ports.
    time_wait: "time-wait" {
        "link": "rtt=2ms",
        "port-range": "40000-40015",
        "tw-reuse": "0",
        "count": "20",
        "workers": "2",
    }
    visitors: "visitors" {
        "link": "rtt=2ms",
        "server": "apache-event",
        "work": "0",
        "resources": "2",
        "rate": "5",
        "pages": "2",
        "think": "200ms",
        "warmup": "1s",
        "duration": "2s",
    }
    // The backend stalls.
    worker_pool: "worker-pool" {
        "link": "rtt=2ms",
        "workers": "2",
        "rate": "50",
        "warmup": "50ms",
        "duration": "400ms",
        "stall-after": "100ms",
        "stall": "150ms",
    }
}
