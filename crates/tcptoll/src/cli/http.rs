//! Which words does `http` take?
#![allow(clippy::doc_markdown)] // the doc comments are the help text, which has no back quotes

use clap::Args;

use super::{OutputArgs, RoundArgs};

const HTTP_AFTER: &str = "\
Examples:
  tcptoll http
      nginx in the lab, two connections that are used again
  tcptoll http --reuse keep-alive,server-close,client-close http://127.0.0.1:8080/
      three ways of using connections against a server of yours, in rounds until it is sure
  tcptoll http --server nginx,puma --reuse keep-alive,server-close --link direct,same-room
      eight arms: the product
  tcptoll http --rate 2000 --spread poisson --duration 10s
      open loop: latency counts from when a request was due
  tcptoll http --reuse requests=1,requests=10,lifetime=1s --work 5ms
      how often must a connection be used again, if an answer takes 5 ms?
  tcptoll http --tls full,resumed --reuse server-close
      what a TLS handshake costs each connection
  tcptoll http --access-log access.log --connections 10 https://staging.example/
      the requests of a log, in its order
  tcptoll http --server 'python3 -m http.server 8000' --path /LICENSE
      any server that a command starts

An option with several values (--connections 10,100) makes an arm of each; the others are compared
against the first.

Ways of using connections (--reuse):
  keep-alive          one request after another, for as long as the server lets it
  requests=N          so many, then the client closes
  lifetime=TIME       for so long, then the client closes after the response
  server-close        `Connection: close` is sent: the server closes
  client-close        the client closes after the response, without having asked
  http1.0             HTTP/1.0: the server closes
  http1.0-keep-alive  HTTP/1.0 with `Connection: keep-alive`
  idle=TIME           as keep-alive, with so long between a response and the next request";

/// Options of `http`.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = HTTP_AFTER)]
pub struct HttpArgs {
    /// What to ask for, of a server that already runs, instead of the lab; several of one server
    /// are asked for in turn
    #[arg(value_name = "URL")]
    pub url: Vec<String>,

    /// Link between the two hosts: a name (see `tcptoll links`) or rtt=37ms,rate=1gbit,loss=0.1%,
    /// jitter=1ms,queue=100p; given again, or several names: one arm each
    #[arg(long, value_name = "LINK", help_heading = "Place")]
    pub link: Vec<String>,
    /// Server to start on the lab's server host: nginx, apache (apache-event, apache-worker,
    /// apache-prefork), puma, null (tcptoll's own, for calibration), or a command; given again, or
    /// several names: one arm each [default: nginx]
    #[arg(long, value_name = "NAME|COMMAND", help_heading = "Place")]
    pub server: Vec<String>,
    /// Port of a server that a command starts, if it listens on several
    #[arg(long, value_name = "PORT", help_heading = "Place")]
    pub port: Option<String>,
    /// Use IPv6 in the lab
    #[arg(long, help_heading = "Place")]
    pub ipv6: bool,
    /// Relay the emulated link over AF_PACKET even where /dev/net/tun can be opened
    #[arg(long, help_heading = "Place")]
    pub packet_relay: bool,
    /// Sysctl of the client host, like net.ipv4.tcp_tw_reuse=1; may be given again
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Place")]
    pub client_sysctl: Vec<String>,
    /// Sysctl of the server host, like net.core.somaxconn=128; may be given again
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Place")]
    pub server_sysctl: Vec<String>,

    /// How connections are used again; the ways are listed below [default: keep-alive]
    #[arg(long, value_name = "WAY", value_delimiter = ',', help_heading = "Requests")]
    pub reuse: Vec<String>,
    /// Method of every request [default: GET; POST with --body]
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Requests")]
    pub method: Vec<String>,
    /// Path to ask the lab's server for, or several with blanks between, in turn [default: that of
    /// the server's small page]
    #[arg(long, value_name = "PATH", help_heading = "Requests")]
    pub path: Option<String>,
    /// Field of every request, like 'Accept: text/html'; may be given again
    #[arg(long, short = 'H', value_name = "NAME: VALUE", help_heading = "Requests")]
    pub header: Vec<String>,
    /// Content of every request, of at most 1 MiB
    #[arg(long, value_name = "TEXT|@FILE", help_heading = "Requests")]
    pub body: Option<String>,
    /// Ask for what a log in common or combined format asks for, in its order; of one URL, or of
    /// the lab's server
    #[arg(long, value_name = "FILE", help_heading = "Requests")]
    pub access_log: Option<String>,
    /// TLS to the lab's server, or how to do the handshakes of https://: full (each time) or
    /// resumed (where the server allows it) [default: off; resumed with https://]
    #[arg(long, value_name = "off,full,resumed", value_delimiter = ',', help_heading = "Requests")]
    pub tls: Vec<String>,
    /// Further root certificates, PEM
    #[arg(long, value_name = "FILE", help_heading = "Requests")]
    pub ca: Option<String>,
    /// Accept any certificate
    #[arg(long, help_heading = "Requests")]
    pub insecure: bool,

    /// Connections at once, at most [default: 50; in a closed loop in the lab 2]
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "N",
        value_delimiter = ',',
        help_heading = "Load"
    )]
    pub connections: Vec<String>,
    /// Requests due per second, whether or not others have been answered (open loop); latency
    /// counts from when each was due
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "PER_SECOND",
        value_delimiter = ',',
        help_heading = "Load"
    )]
    pub rate: Vec<String>,
    /// How these are spread: evenly, or as independent users would [default: constant]
    #[arg(long, value_name = "constant,poisson", value_delimiter = ',', help_heading = "Load")]
    pub spread: Vec<String>,
    /// Time in which each trial begins requests [default: 1s]
    #[arg(long, value_name = "TIME", value_delimiter = ',', help_heading = "Load")]
    pub duration: Vec<String>,
    /// Requests of each trial, instead of a time; with --duration as well, whichever comes first
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "N",
        value_delimiter = ',',
        help_heading = "Load"
    )]
    pub requests: Vec<String>,
    /// Requests, or time, before what is measured; connections are kept, figures are apart
    /// [default: 200ms and the ramp]
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "N|TIME",
        value_delimiter = ',',
        help_heading = "Load"
    )]
    pub warmup: Vec<String>,
    /// Time over which the first connections are begun, evenly [default: none for up to 1000 on a
    /// link without delay, else 0.1 ms each and a round trip at least]
    #[arg(long, value_name = "TIME", value_delimiter = ',', help_heading = "Load")]
    pub ramp: Vec<String>,
    /// Threads of the client, each with a loop of its own [default: 1]
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "N",
        value_delimiter = ',',
        help_heading = "Load"
    )]
    pub threads: Vec<String>,
    /// What the client waits with; auto: io_uring where the kernel allows it, else epoll [default:
    /// auto]
    #[arg(long, value_name = "auto,epoll,io-uring", value_delimiter = ',', help_heading = "Load")]
    pub io: Vec<String>,
    /// Handle what has happened together, at most this much later: less CPU per request; latency
    /// stays exact, as the kernel stamps what it receives [default: 0]
    #[arg(long, value_name = "TIME", value_delimiter = ',', help_heading = "Load")]
    pub batch: Vec<String>,
    /// Time limit of one request, from when it was due to its last byte [default: 10s]
    #[arg(long, value_name = "TIME", value_delimiter = ',', help_heading = "Load")]
    pub timeout: Vec<String>,
    /// Time limit of one handshake [default: that of --timeout]
    #[arg(long, value_name = "TIME", value_delimiter = ',', help_heading = "Load")]
    pub connect_timeout: Vec<String>,
    /// Source addresses, taken in turn; the lab's client host is given them
    #[arg(long, value_name = "ADDRESS,…", help_heading = "Load")]
    pub bind: Option<String>,
    /// Congestion control of the client's sockets
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Load")]
    pub congestion: Vec<String>,

    /// Statuses that are successes, with + between: 200, 2xx, 2xx+304 [default: 2xx+3xx]
    #[arg(long, value_name = "STATUS", help_heading = "Success")]
    pub expect_status: Option<String>,
    /// SHA-256 that the content of every response must have
    #[arg(long, value_name = "HEX", help_heading = "Success")]
    pub expect_sha256: Option<String>,
    /// Most content of one response [default: 64 MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Success")]
    pub body_limit: Option<String>,

    /// Its processes, or threads where it has none [default: 1]
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "N",
        value_delimiter = ',',
        help_heading = "Server by name"
    )]
    pub workers: Vec<String>,
    /// Whether it lets a connection be used again [default: on]
    #[arg(long, value_name = "on,off", value_delimiter = ',', help_heading = "Server by name")]
    pub keepalive: Vec<String>,
    /// Requests after which it closes a connection, 0: never [default: the server's own]
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "N",
        value_delimiter = ',',
        help_heading = "Server by name"
    )]
    pub keepalive_requests: Vec<String>,
    /// Time after which it closes an idle connection [default: the server's own]
    #[arg(long, value_name = "TIME", value_delimiter = ',', help_heading = "Server by name")]
    pub keepalive_timeout: Vec<String>,
    /// Size of the content of its responses, like 13 or 10K [default: 13]
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "SIZE",
        value_delimiter = ',',
        help_heading = "Server by name"
    )]
    pub response: Vec<String>,
    /// Time it works before it answers [default: 0]
    #[arg(long, value_name = "TIME", value_delimiter = ',', help_heading = "Server by name")]
    pub work: Vec<String>,
    /// Backlog of its listener [default: the server's own]
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "N",
        value_delimiter = ',',
        help_heading = "Server by name"
    )]
    pub backlog: Vec<String>,

    /// On a link without emulation: let a packet tap ride along, which counts packets by kind (it
    /// costs CPU)
    #[arg(long, help_heading = "Output")]
    pub tap: bool,
    /// How often every arm is run
    #[command(flatten)]
    pub rounds: RoundArgs,
    /// Where results go
    #[command(flatten)]
    pub output: OutputArgs,
}
