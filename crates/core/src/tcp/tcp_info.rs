//! What does the kernel know about one TCP socket?
//!
//! Decodes `struct tcp_info` as `getsockopt(TCP_INFO)` and `INET_DIAG_INFO` of `sock_diag` return
//! it. The bytes are in the machine's own order, so captured replies are little-endian.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a TCP socket, in the spelling of RFC 9293.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "SCREAMING-KEBAB-CASE")]
#[expect(missing_docs, reason = "the names are those of RFC 9293 section 3.3.2")]
pub enum TcpState {
    Established,
    SynSent,
    /// Never of a socket that a program holds, and listed by `sock_diag` only.
    SynReceived,
    #[serde(rename = "FIN-WAIT-1")]
    FinWait1,
    #[serde(rename = "FIN-WAIT-2")]
    FinWait2,
    TimeWait,
    #[default]
    Closed,
    CloseWait,
    LastAck,
    Listen,
    Closing,
}

impl TcpState {
    /// The state that the kernel calls by this number.
    ///
    /// Source:  Linux `include/net/tcp_states.h`; 12 (`TCP_NEW_SYN_RECV`) is a request that has no
    ///          socket yet, and so SYN-RECEIVED too.
    pub fn from_kernel(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Established,
            2 => Self::SynSent,
            3 | 12 => Self::SynReceived,
            4 => Self::FinWait1,
            5 => Self::FinWait2,
            6 => Self::TimeWait,
            7 => Self::Closed,
            8 => Self::CloseWait,
            9 => Self::LastAck,
            10 => Self::Listen,
            11 => Self::Closing,
            _ => return None,
        })
    }

    /// Its name in RFC 9293, as the record spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Established => "ESTABLISHED",
            Self::SynSent => "SYN-SENT",
            Self::SynReceived => "SYN-RECEIVED",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::TimeWait => "TIME-WAIT",
            Self::Closed => "CLOSED",
            Self::CloseWait => "CLOSE-WAIT",
            Self::LastAck => "LAST-ACK",
            Self::Listen => "LISTEN",
            Self::Closing => "CLOSING",
        }
    }
}

/// One `struct tcp_info` reply, split by what its fields mean.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "decoded one at a time and taken apart at once")]
pub enum TcpInfo {
    /// A socket in LISTEN: the kernel reuses two fields for the accept queue.
    Listener(AcceptQueue),
    /// A socket in any other state.
    Connection(PathSample),
}

/// The accept queue of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AcceptQueue {
    /// Connections that wait for `accept()` (`tcpi_unacked`, Recv-Q of `ss`).
    pub len: u32,
    /// What `listen()` was given, after `somaxconn` (`tcpi_sacked`, Send-Q of `ss`).
    ///
    /// The queue holds one more: the kernel refuses when `len > limit` (measured on Linux 6.18).
    pub limit: u32,
}

/// `TCP_INFO` of one connection, for the record; units are the kernel's, in the names.
///
/// Fields are `None` where the kernel is too old to have them, or has no value yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PathSample {
    /// State.
    pub state: TcpState,
    /// Timeouts in a row without an answer (`tcpi_retransmits`).
    pub retransmits: u8,
    /// Bits of `TCPI_OPT_*`: 1 timestamps, 2 SACK, 4 window scale, 8 ECN, 32 SYN data.
    pub options: u8,
    /// Shift of the windows that the peer announces.
    pub snd_wscale: u8,
    /// Shift of the windows that we announce.
    pub rcv_wscale: u8,
    /// Retransmission timeout, µs.
    pub rto_us: u32,
    /// Largest segment we send, bytes of payload.
    pub snd_mss_bytes: u32,
    /// Largest segment the peer seems to send, bytes of payload; a guess of the kernel.
    pub rcv_mss_bytes: u32,
    /// Segments sent and not acknowledged.
    pub unacked_segments: u32,
    /// Segments sent again and still unacknowledged.
    pub retrans_segments: u32,
    /// Smoothed round-trip time, µs (`tcpi_rtt`, RFC 6298); 0 before the first sample.
    pub rtt_us: u32,
    /// Its mean deviation, µs.
    pub rttvar_us: u32,
    /// Slow-start threshold, segments; absent until the first loss sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snd_ssthresh_segments: Option<u32>,
    /// Congestion window, segments.
    pub snd_cwnd_segments: u32,
    /// Largest segment we told the peer to send, bytes.
    pub advmss_bytes: u32,
    /// Path MTU, bytes.
    pub pmtu_bytes: u32,
    /// Segments sent again over the connection's life, the SYN among them.
    pub total_retrans_segments: u32,
    /// Pacing rate, bytes/s; absent where the socket is not paced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacing_rate_bytes_per_s: Option<u64>,
    /// Bytes acknowledged by the peer; counts the SYN as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_acked: Option<u64>,
    /// Bytes received in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_received: Option<u64>,
    /// Segments sent, pure ACKs and repeats among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segs_out: Option<u32>,
    /// Segments received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segs_in: Option<u32>,
    /// Bytes written by the program and not sent yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notsent_bytes: Option<u32>,
    /// Smallest round trip of the last minutes, µs; absent before the first sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rtt_us: Option<u32>,
    /// The kernel's latest estimate of how fast data arrives, bytes/s; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_rate_bytes_per_s: Option<u64>,
    /// Time with data to send or to be acknowledged, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_time_us: Option<u64>,
    /// Of it, time limited by the peer's receive window, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rwnd_limited_us: Option<u64>,
    /// Of it, time limited by our send buffer, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sndbuf_limited_us: Option<u64>,
    /// Segments delivered to the peer, repeats that arrived twice among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_segments: Option<u32>,
    /// Payload sent, repeats included, bytes (`tcpi_bytes_sent`); since Linux 4.19.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_sent: Option<u64>,
    /// Of it, retransmitted, bytes (`tcpi_bytes_retrans`); since Linux 4.19.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_retransmitted: Option<u64>,
    /// Whether the delivery rate was limited by the program, which gave too little to send
    /// (`tcpi_delivery_rate_app_limited`); absent where there is no delivery rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_rate_app_limited: Option<bool>,
    /// The peer's receive window, bytes after scaling; since Linux 5.4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snd_wnd_bytes: Option<u32>,
    /// Our receive window, bytes after scaling; since Linux 6.2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rcv_wnd_bytes: Option<u32>,
    /// Times the flow was given another hash after timeouts; since Linux 6.2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rehash: Option<u32>,
    /// Congestion control, from `TCP_CONGESTION`: it is not in the struct, the caller sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
}

impl TcpInfo {
    /// Decodes the bytes that `getsockopt(TCP_INFO)` or `INET_DIAG_INFO` returned.
    ///
    /// The struct only ever grows at its end, so a short reply is an old kernel, not an error:
    /// later fields become `None`.
    ///
    /// None:    the 104 bytes every kernel since 2.6 has are cut, or the state is unknown.
    /// Source:  `struct tcp_info` of Linux `include/uapi/linux/tcp.h`, 6.18 (280 bytes). Padding is
    ///          the same on 32 and 64 bits: every `u64` lies on a multiple of 8.
    #[must_use]
    pub fn decode(reply: &[u8]) -> Option<Self> {
        let state = TcpState::from_kernel(*reply.first()?)?;
        let byte = |at: usize| reply.get(at).copied();
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_ne_bytes(reply.get(at..at + 4)?.try_into().ok()?))
        };
        let long = |at: usize| -> Option<u64> {
            Some(u64::from_ne_bytes(reply.get(at..at + 8)?.try_into().ok()?))
        };
        if state == TcpState::Listen {
            return Some(Self::Listener(AcceptQueue { len: word(24)?, limit: word(28)? }));
        }
        let (snd_wscale, rcv_wscale) = nibbles(byte(6)?);
        Some(Self::Connection(PathSample {
            state,
            retransmits: byte(2)?,
            options: byte(5)?,
            snd_wscale,
            rcv_wscale,
            rto_us: word(8)?,
            snd_mss_bytes: word(16)?,
            rcv_mss_bytes: word(20)?,
            unacked_segments: word(24)?,
            retrans_segments: word(36)?,
            pmtu_bytes: word(60)?,
            rtt_us: word(68)?,
            rttvar_us: word(72)?,
            // TCP_INFINITE_SSTHRESH: no loss has set it yet.
            snd_ssthresh_segments: Some(word(76)?).filter(|&segments| segments < 0x7fff_ffff),
            snd_cwnd_segments: word(80)?,
            advmss_bytes: word(84)?,
            total_retrans_segments: word(100)?,
            // All ones: not paced. (A 32-bit kernel says so in 32 bits.)
            pacing_rate_bytes_per_s: long(104)
                .filter(|rate| ![u64::MAX, u64::from(u32::MAX)].contains(rate)),
            bytes_acked: long(120),
            bytes_received: long(128),
            segs_out: word(136),
            segs_in: word(140),
            notsent_bytes: word(144),
            // All ones: no sample yet.
            min_rtt_us: word(148).filter(|&us| us != u32::MAX),
            delivery_rate_bytes_per_s: long(160).filter(|&rate| rate > 0),
            busy_time_us: long(168),
            rwnd_limited_us: long(176),
            sndbuf_limited_us: long(184),
            delivered_segments: word(192),
            bytes_sent: long(200),
            bytes_retransmitted: long(208),
            delivery_rate_app_limited: long(160)
                .filter(|&rate| rate > 0)
                .and_then(|_| byte(7))
                .map(first_bit),
            snd_wnd_bytes: word(228),
            rcv_wnd_bytes: word(232),
            rehash: word(236),
            congestion: None,
        }))
    }
}

/// Two bit fields of 4 in one byte, in the order of their declaration.
///
/// C compilers begin at the low bits on little-endian machines and at the high bits on others.
fn nibbles(byte: u8) -> (u8, u8) {
    let (low, high) = (byte & 0x0f, byte >> 4);
    if cfg!(target_endian = "little") { (low, high) } else { (high, low) }
}

/// The first bit field, of 1 bit, in one byte: see [`nibbles`].
fn first_bit(byte: u8) -> bool {
    let mask = if cfg!(target_endian = "little") { 1 } else { 0x80 };
    byte & mask != 0
}

// The captured replies are of a little-endian machine.
#[cfg(all(test, target_endian = "little"))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CONNECTION: &[u8] = include_bytes!("../../tests/captured/tcp-info-connection-6.18.bin");
    const LISTENER: &[u8] = include_bytes!("../../tests/captured/tcp-info-listener-6.18.bin");

    fn path(reply: &[u8]) -> PathSample {
        match TcpInfo::decode(reply) {
            Some(TcpInfo::Connection(path)) => path,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_captured_connection_has_the_values_that_the_capture_script_printed() {
        assert_eq!(CONNECTION.len(), 280);
        let expected = PathSample {
            state: TcpState::Established,
            retransmits: 0,
            options: 7,
            snd_wscale: 10,
            rcv_wscale: 10,
            rto_us: 204_000,
            snd_mss_bytes: 35_328,
            rcv_mss_bytes: 536,
            unacked_segments: 0,
            retrans_segments: 0,
            rtt_us: 10,
            rttvar_us: 6,
            snd_ssthresh_segments: None,
            snd_cwnd_segments: 18,
            advmss_bytes: 65_483,
            pmtu_bytes: 65_535,
            total_retrans_segments: 0,
            pacing_rate_bytes_per_s: Some(19_095_694_024),
            bytes_acked: Some(20_001),
            bytes_received: Some(200),
            segs_out: Some(24),
            segs_in: Some(22),
            notsent_bytes: Some(0),
            min_rtt_us: Some(7),
            delivery_rate_bytes_per_s: Some(5_046_857_142),
            busy_time_us: Some(0),
            rwnd_limited_us: Some(0),
            sndbuf_limited_us: Some(0),
            delivered_segments: Some(21),
            bytes_sent: Some(20_000),
            bytes_retransmitted: Some(0),
            delivery_rate_app_limited: Some(true),
            snd_wnd_bytes: Some(70_656),
            rcv_wnd_bytes: Some(65_536),
            rehash: Some(0),
            congestion: None,
        };
        assert_eq!(path(CONNECTION), expected);
    }

    #[test]
    fn a_captured_listener_of_backlog_seven_has_two_waiting() {
        let expected = TcpInfo::Listener(AcceptQueue { len: 2, limit: 7 });
        assert_eq!(TcpInfo::decode(LISTENER), Some(expected));
    }

    #[test]
    fn a_reply_of_104_bytes_is_an_old_kernel_without_the_later_fields() {
        let old = path(&CONNECTION[..104]);
        assert_eq!((old.rtt_us, old.snd_cwnd_segments), (10, 18));
        assert_eq!((old.min_rtt_us, old.bytes_acked, old.rehash), (None, None, None));
        assert!(!serde_json::to_string(&old).unwrap().contains("min_rtt_us"));
        assert_eq!(TcpInfo::decode(&CONNECTION[..103]), None);
    }

    #[test]
    fn a_reply_that_ends_within_a_field_lacks_that_field_only() {
        let cut = path(&CONNECTION[..231]);
        assert_eq!(cut.delivered_segments, Some(21));
        assert_eq!((cut.snd_wnd_bytes, cut.rcv_wnd_bytes), (None, None));
    }

    #[test]
    fn values_the_kernel_has_not_got_are_absent_and_not_all_ones() {
        let mut reply = CONNECTION.to_vec();
        reply[104..112].fill(0xff);
        reply[148..152].fill(0xff);
        reply[160..168].fill(0);
        let fresh = path(&reply);
        assert_eq!((fresh.pacing_rate_bytes_per_s, fresh.min_rtt_us), (None, None));
        assert_eq!(
            (fresh.delivery_rate_bytes_per_s, fresh.delivery_rate_app_limited),
            (None, None)
        );
    }

    #[test]
    fn states_are_spelt_as_in_rfc_9293() {
        let spelt = |number| {
            serde_json::to_string(&TcpState::from_kernel(number)).unwrap().replace('"', "")
        };
        let all: Vec<String> = (0..=13).map(spelt).collect();
        let expected = "null ESTABLISHED SYN-SENT SYN-RECEIVED FIN-WAIT-1 FIN-WAIT-2 TIME-WAIT \
                        CLOSED CLOSE-WAIT LAST-ACK LISTEN CLOSING SYN-RECEIVED null";
        assert_eq!(all.join(" "), expected);
        let named = |number| TcpState::from_kernel(number).map_or("null", TcpState::name);
        let all: Vec<&str> = (0..=13).map(named).collect();
        assert_eq!(all.join(" "), expected);
    }

    #[test]
    fn a_sample_survives_the_record() {
        let mut sample = path(CONNECTION);
        sample.congestion = Some("bbr".to_owned());
        let json = serde_json::to_string(&sample).unwrap();
        assert_eq!(serde_json::from_str::<PathSample>(&json).unwrap(), sample);
    }

    proptest! {
        #[test]
        fn any_bytes_decode_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = TcpInfo::decode(&bytes);
        }
    }
}
