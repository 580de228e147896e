//! How many half-open requests does a listener hold, before its kernel drops SYNs or sends cookies?
//!
//! It follows from three settings of the server: the backlog of listen(2) after the clamp to
//! `net.core.somaxconn`, `net.ipv4.tcp_max_syn_backlog` and `net.ipv4.tcp_syncookies`. What a full
//! queue means for clients is measured, and not said here.

/// The settings of a server that limit a listener's half-open requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfOpenSettings {
    /// The effective backlog: the argument of listen(2), clamped to `net.core.somaxconn`.
    pub backlog: u32,
    /// `net.ipv4.tcp_max_syn_backlog`.
    pub max_syn_backlog: u32,
    /// `net.ipv4.tcp_syncookies`: 0 never, 1 when the SYN queue is full, 2 for every SYN.
    pub syncookies: u32,
}

/// What the kernel does with a SYN that meets a full SYN queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It drops the SYN and counts `TcpExtTCPReqQFullDrop`: the backlog is the limit.
    DropsAndCounts,
    /// It drops the SYN and counts `TcpExtListenDrops` alone: the last quarter of
    /// `tcp_max_syn_backlog` is kept for clients that the server knows.
    KeepsLastQuarter,
    /// It answers with a SYN cookie and holds nothing.
    SendsCookie,
}

impl HalfOpenSettings {
    /// Half-open requests of unknown clients that the listener holds.
    ///
    /// With cookies off there are two limits, and the lower one decides. The backlog: the queue is
    /// full when it holds more than the backlog. And three quarters of `tcp_max_syn_backlog`: the rest
    /// is kept for clients of earlier connections, whose round trip the kernel remembers. With cookies
    /// on, `tcp_max_syn_backlog` has no effect. With cookies for every SYN nothing is held.
    ///
    /// Source:  Linux `tcp_conn_request()` of `net/ipv4/tcp_input.c` and `inet_csk_reqsk_queue_is_full()`
    ///          of `include/net/inet_connection_sock.h`; measured on 6.18 for backlogs 1 to 128 and
    ///          `tcp_max_syn_backlog` 1 to 128.
    pub fn holds(self) -> u32 {
        match self.syncookies {
            0 => self.by_backlog().min(self.by_last_quarter()),
            1 => self.by_backlog(),
            _ => 0,
        }
    }

    /// What the kernel does with the next SYN of an unknown client.
    pub fn when_full(self) -> WhenFull {
        match self.syncookies {
            0 if self.by_last_quarter() < self.by_backlog() => WhenFull::KeepsLastQuarter,
            0 => WhenFull::DropsAndCounts,
            _ => WhenFull::SendsCookie,
        }
    }

    fn by_backlog(self) -> u32 {
        self.backlog.saturating_add(1)
    }

    fn by_last_quarter(self) -> u32 {
        (self.max_syn_backlog - self.max_syn_backlog / 4).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(syncookies: u32, backlog: u32, max_syn_backlog: u32) -> HalfOpenSettings {
        HalfOpenSettings { backlog, max_syn_backlog, syncookies }
    }

    #[test]
    fn the_lower_of_two_limits_decides_without_cookies() {
        // Measured on Linux 6.18: SYNs of nobody that a listener held.
        for (backlog, max_syn_backlog, held) in [
            (1, 128, 2),
            (4, 16, 5),
            (64, 1, 2),
            (64, 3, 4),
            (64, 16, 13),
            (64, 128, 65),
            (128, 128, 97),
            (128, 1_024, 129),
        ] {
            let settings = with(0, backlog, max_syn_backlog);
            assert_eq!(settings.holds(), held, "{settings:?}");
        }
        assert_eq!(with(0, 128, 128).when_full(), WhenFull::KeepsLastQuarter);
        assert_eq!(with(0, 96, 128).when_full(), WhenFull::DropsAndCounts, "97 both ways");
    }

    #[test]
    fn with_cookies_the_backlog_alone_decides() {
        assert_eq!((with(1, 128, 16).holds(), with(1, 4, 16).holds()), (129, 5));
        assert_eq!(with(1, 128, 16).when_full(), WhenFull::SendsCookie);
        assert_eq!(with(2, 128, 1_024).holds(), 0, "a cookie for every SYN");
    }

    #[test]
    fn no_setting_overflows() {
        assert_eq!(with(0, u32::MAX, u32::MAX).holds(), u32::MAX - u32::MAX / 4 + 1);
        assert_eq!(with(1, u32::MAX, 0).holds(), u32::MAX);
        assert_eq!(with(0, 0, 0).holds(), 1);
    }
}
