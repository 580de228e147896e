//! What peers print: captured from wrk 4.1.0, ab 2.3 (Debian 2.4.71), h2load 1.52.0 and
//! hey 0.1.4 against nginx 1.22.1; bars of histograms and progress lines are cut off. Of oha and
//! fortio the lines that are read, after their documentation.

use super::*;

const WRK: &str = r"Running 1s test @ http://127.0.0.1:38080/
  1 threads and 50 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.44ms    1.73ms  12.98ms   86.31%
    Req/Sec    36.17k    20.86k   71.03k    70.00%
  35978 requests in 1.02s, 5.52MB read
Requests/sec:  35422.99
Transfer/sec:      5.44MB";

const WRK_404: &str = r"Running 1s test @ http://127.0.0.1:38080/no
  1 threads and 50 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     2.54ms    3.16ms  26.39ms   90.64%
    Req/Sec    21.67k     4.18k   30.57k    70.00%
  21856 requests in 1.02s, 3.50MB read
  Non-2xx or 3xx responses: 21856
Requests/sec:  21516.70
Transfer/sec:      3.45MB";

const WRK_REFUSED: &str = r"unable to connect to 127.0.0.1:38080 Connection refused";

const AB: &str = r"This is ApacheBench, Version 2.3 <$Revision$>
Copyright 1996 Adam Twiss, Zeus Technology Ltd, http://www.zeustech.net/
Licensed to The Apache Software Foundation, http://www.apache.org/

Benchmarking 127.0.0.1 (be patient).....done


Server Software:        nginx/1.22.1
Server Hostname:        127.0.0.1
Server Port:            38080

Document Path:          /
Document Length:        13 bytes

Concurrency Level:      50
Time taken for tests:   1.001 seconds
Complete requests:      35914
Failed requests:        0
Keep-Alive requests:    35914
Total transferred:      5782154 bytes
HTML transferred:       466882 bytes
Requests per second:    35890.60 [#/sec] (mean)
Time per request:       1.393 [ms] (mean)
Time per request:       0.028 [ms] (mean, across all concurrent requests)
Transfer rate:          5642.96 [Kbytes/sec] received

Connection Times (ms)
              min  mean[+/-sd] median   max
Connect:        0    0   0.0      0       1
Processing:     0    1   1.7      1      19
Waiting:        0    1   1.7      1      19
Total:          0    1   1.7      1      19

Percentage of the requests served within a certain time (ms)
  50%      1
  66%      1
  75%      1
  80%      1
  90%      3
  95%      5
  98%      7
  99%      8
 100%     19 (longest request)";

const AB_404: &str = r"This is ApacheBench, Version 2.3 <$Revision$>
Copyright 1996 Adam Twiss, Zeus Technology Ltd, http://www.zeustech.net/
Licensed to The Apache Software Foundation, http://www.apache.org/

Benchmarking 127.0.0.1 (be patient).....done


Server Software:        nginx/1.22.1
Server Hostname:        127.0.0.1
Server Port:            38080

Document Path:          /no
Document Length:        13 bytes

Concurrency Level:      50
Time taken for tests:   1.005 seconds
Complete requests:      4549
Failed requests:        0
Non-2xx responses:      4549
Total transferred:      741487 bytes
HTML transferred:       59137 bytes
Requests per second:    4527.94 [#/sec] (mean)
Time per request:       11.043 [ms] (mean)
Time per request:       0.221 [ms] (mean, across all concurrent requests)
Transfer rate:          720.76 [Kbytes/sec] received

Connection Times (ms)
              min  mean[+/-sd] median   max
Connect:        0    3   3.4      1      20
Processing:     1    8   4.6      7      23
Waiting:        0    5   3.4      5      17
Total:          2   11   4.4     11      30

Percentage of the requests served within a certain time (ms)
  50%     11
  66%     12
  75%     14
  80%     14
  90%     16
  95%     18
  98%     21
  99%     24
 100%     30 (longest request)";

const H2LOAD: &str = r"starting benchmark...
spawning thread #0: 50 total client(s). Timing-based test with 0s of warm-up time and 1s of main duration for measurements.
Warm-up started for thread #0.
Warm-up phase is over for thread #0.
Main benchmark duration is started for thread #0.
Application protocol: http/1.1
Main benchmark duration is over for thread #0. Stopping all clients.
Stopped all clients for thread #0

finished in 1.01s, 33299.00 req/s, 5.11MB/s
requests: 33299 total, 33349 started, 33299 done, 33299 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 33299 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 5.11MB (5361139) total, 3.47MB (3635041) headers (space savings 0.00%), 423.38KB (433537) data
                     min         max         mean         sd        +/- sd
time for request:      348us     11.27ms      1.50ms      1.70ms    84.11%
time for connect:       12us       357us       215us        89us    66.00%
time to 1st byte:     5.58ms      5.90ms      5.72ms        91us    58.00%
req/s           :     627.52      712.30      665.45       25.02    56.00%";

const H2LOAD_404: &str = r"starting benchmark...
spawning thread #0: 50 total client(s). Timing-based test with 0s of warm-up time and 1s of main duration for measurements.
Warm-up started for thread #0.
Warm-up phase is over for thread #0.
Main benchmark duration is started for thread #0.
Application protocol: http/1.1
Main benchmark duration is over for thread #0. Stopping all clients.
Stopped all clients for thread #0

finished in 1.02s, 18297.00 req/s, 2.93MB/s
requests: 18297 total, 18347 started, 18297 done, 0 succeeded, 18297 failed, 0 errored, 0 timeout
status codes: 0 2xx, 0 3xx, 18297 4xx, 0 5xx
traffic: 2.93MB (3073896) total, 1.90MB (1995245) headers (space savings 0.00%), 232.39KB (237965) data
                     min         max         mean         sd        +/- sd
time for request:      337us     12.93ms      2.73ms      2.47ms    83.67%
time for connect:       12us       300us       163us        81us    58.00%
time to 1st byte:      784us      3.69ms      3.57ms       404us    98.00%
req/s           :     342.52      386.25      364.27       12.40    58.00%";

const H2LOAD_REFUSED: &str = r"starting benchmark...
spawning thread #0: 5 total client(s). Timing-based test with 0s of warm-up time and 1s of main duration for measurements.
Warm-up started for thread #0.
Warm-up phase is over for thread #0.
Main benchmark duration is started for thread #0.
Main benchmark duration is over for thread #0. Stopping all clients.
Stopped all clients for thread #0

finished in 1.00s, 0.00 req/s, 0B/s
requests: 0 total, 0 started, 0 done, 0 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 0 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 0B (0) total, 0B (0) headers (space savings 0.00%), 0B (0) data
                     min         max         mean         sd        +/- sd
time for request:        0us         0us         0us         0us     0.00%
time for connect:        0us         0us         0us         0us     0.00%
time to 1st byte:        0us         0us         0us         0us     0.00%
req/s           :       0.00        0.00        0.00        0.00   100.00%";

const HEY: &str = r"Summary:
  Total:	1.0095 secs
  Slowest:	0.0646 secs
  Fastest:	0.0000 secs
  Average:	0.0032 secs
  Requests/sec:	15211.1827

  Total data:	199615 bytes
  Size/request:	13 bytes

Response time histogram:
  0.000 [1]	|
  0.006 [13253]	|
  0.013 [1720]	|
  0.019 [303]	|
  0.026 [27]	|
  0.032 [0]	|
  0.039 [2]	|
  0.045 [24]	|
  0.052 [0]	|
  0.058 [17]	|
  0.065 [8]	|


Latency distribution:
  10% in 0.0006 secs
  25% in 0.0011 secs
  50% in 0.0021 secs
  75% in 0.0033 secs
  90% in 0.0079 secs
  95% in 0.0109 secs
  99% in 0.0170 secs

Details (average, fastest, slowest):
  DNS+dialup:	0.0001 secs, 0.0000 secs, 0.0646 secs
  DNS-lookup:	0.0000 secs, 0.0000 secs, 0.0000 secs
  req write:	0.0000 secs, 0.0000 secs, 0.0140 secs
  resp wait:	0.0031 secs, 0.0000 secs, 0.0266 secs
  resp read:	0.0000 secs, 0.0000 secs, 0.0182 secs

Status code distribution:
  [200]	15355 responses";

const HEY_404: &str = r"Summary:
  Total:	1.0191 secs
  Slowest:	0.0931 secs
  Fastest:	0.0021 secs
  Average:	0.0244 secs
  Requests/sec:	2010.6219

  Total data:	26637 bytes
  Size/request:	13 bytes

Response time histogram:
  0.002 [1]	|
  0.011 [540]	|
  0.020 [378]	|
  0.029 [378]	|
  0.039 [360]	|
  0.048 [232]	|
  0.057 [88]	|
  0.066 [44]	|
  0.075 [17]	|
  0.084 [10]	|
  0.093 [1]	|


Latency distribution:
  10% in 0.0053 secs
  25% in 0.0100 secs
  50% in 0.0233 secs
  75% in 0.0357 secs
  90% in 0.0456 secs
  95% in 0.0542 secs
  99% in 0.0722 secs

Details (average, fastest, slowest):
  DNS+dialup:	0.0051 secs, 0.0021 secs, 0.0931 secs
  DNS-lookup:	0.0000 secs, 0.0000 secs, 0.0000 secs
  req write:	0.0039 secs, 0.0000 secs, 0.0333 secs
  resp wait:	0.0099 secs, 0.0000 secs, 0.0407 secs
  resp read:	0.0055 secs, 0.0000 secs, 0.0377 secs

Status code distribution:
  [404]	2049 responses";

const HEY_REFUSED: &str = r#"Summary:
  Total:	1.0077 secs
  Slowest:	0.0000 secs
  Fastest:	0.0000 secs
  Average:	 NaN secs
  Requests/sec:	812.7666


Response time histogram:


Latency distribution:

Details (average, fastest, slowest):
  DNS+dialup:	 NaN secs, 0.0000 secs, 0.0000 secs
  DNS-lookup:	 NaN secs, 0.0000 secs, 0.0000 secs
  req write:	 NaN secs, 0.0000 secs, 0.0000 secs
  resp wait:	 NaN secs, 0.0000 secs, 0.0000 secs
  resp read:	 NaN secs, 0.0000 secs, 0.0000 secs

Status code distribution:

Error distribution:
  [819]	Get "http://127.0.0.1:38080/": dial tcp 127.0.0.1:38080: connect: connection refused"#;

#[allow(clippy::unnecessary_wraps)] // it is what the parsers give
fn counted(ok: u64, errors: u64, rate: f64) -> Option<Counted> {
    Some(Counted { ok, errors, rate })
}

#[test]
fn requests_that_succeeded_are_read_from_what_each_peer_prints() {
    assert_eq!(read_wrk(WRK), counted(35_978, 0, 35_422.99));
    assert_eq!(read_ab(AB), counted(35_914, 0, 35_890.60));
    assert_eq!(read_h2load(H2LOAD), counted(33_299, 0, 33_299.0));
    assert_eq!(read_distribution(HEY), counted(15_355, 0, 15_211.182_7));
}

#[test]
fn a_status_that_is_no_success_is_an_error() {
    assert_eq!(read_wrk(WRK_404), counted(0, 21_856, 21_516.70));
    assert_eq!(read_ab(AB_404), counted(0, 4_549, 4_527.94));
    assert_eq!(read_h2load(H2LOAD_404), counted(0, 18_297, 18_297.0));
    assert_eq!(read_distribution(HEY_404), counted(0, 2_049, 2_010.621_9));
}

#[test]
fn a_server_that_is_not_there_is_no_success() {
    assert_eq!(read_wrk(WRK_REFUSED), None);
    assert_eq!(read_h2load(H2LOAD_REFUSED), counted(0, 0, 0.0));
    assert_eq!(read_distribution(HEY_REFUSED), counted(0, 819, 812.766_6));
}

#[test]
fn socket_errors_of_wrk_are_errors() {
    let text = WRK.replace(
        "Requests/sec:",
        "  Socket errors: connect 1, read 20, write 0, timeout 300\nRequests/sec:",
    );
    assert_eq!(read_wrk(&text), counted(35_978, 321, 35_422.99));
}

#[test]
fn a_request_of_ab_that_failed_and_had_another_status_is_counted_once_at_most() {
    let text = AB_404.replace("Failed requests:        0", "Failed requests:        4549");
    assert_eq!(read_ab(&text), counted(0, 4_549, 4_527.94));
}

#[test]
fn codes_of_fortio_and_oha_are_read() {
    let fortio = "Code  -1 : 2 (5.0 %)\nCode 200 : 36 (90.0 %)\nCode 503 : 2 (5.0 %)\n\
                  All done 40 calls (plus 4 warmup) 60.588 ms avg, 7.9 qps\n";
    assert_eq!(read_fortio(fortio), counted(36, 4, 7.9));
    let oha = "  Requests/sec:\t1990.5\n\nStatus code distribution:\n  [200] 4000 responses\n\n\
               Error distribution:\n  [50] aborted due to deadline\n";
    assert_eq!(read_distribution(oha), counted(4_000, 50, 1_990.5));
}

#[test]
fn what_is_something_else_or_cut_off_is_not_read() {
    for peer in PEERS {
        for text in ["", "\n", "error: no such option", "[", "[200]", "Code", "requests: "] {
            assert_eq!((peer.read)(text), None, "{}: {text:?}", peer.program);
        }
    }
    for (read, text) in [
        (read_wrk as fn(&str) -> Option<Counted>, WRK),
        (read_ab, AB),
        (read_h2load, H2LOAD),
        (read_distribution, HEY),
    ] {
        // Any beginning is read or refused; nothing panics.
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            let _ = read(&text[..end]);
        }
    }
}

#[test]
fn failures_are_taken_off_the_rate() {
    let half = Counted { ok: 10, errors: 10, rate: 100.0 };
    assert!((half.per_s() - 50.0).abs() < 1e-9);
}

#[test]
fn a_command_has_its_values_filled_in() {
    let wrk = named("wrk").unwrap();
    let line = wrk.line(Case::ServerClose, "http://10.0.0.1/", 2).unwrap();
    assert_eq!(line, "wrk -t1 -c50 -d2s -H 'Connection: close' http://10.0.0.1/");
    assert_eq!(named("h2load").unwrap().line(Case::ServerClose, "", 1), None);
    for peer in PEERS {
        assert!(!peer.holding("u", 7, 1).contains(['{', '}']), "{}", peer.program);
    }
}
