//! What has to be set so that a connection is checked in a given way.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Checking, Mechanism};

/// Where a setting is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Place")]
pub enum SettingPlace {
    /// `setsockopt(2)` on each connection.
    Socket,
    /// A sysctl of the host: for all sockets that only set `SO_KEEPALIVE`.
    Sysctl,
    /// A value of the crate `tcp-heartbeat`, as written in a program.
    Library,
    /// Something that the program itself has to do.
    Program,
}

/// One thing to set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// Where.
    pub place: SettingPlace,
    /// The name there: `TCP_KEEPIDLE`, `net.ipv4.tcp_keepalive_time`, `Timing`.
    pub name: String,
    /// The value as it is written there, in the unit that is meant there.
    pub value: String,
}

impl Checking {
    /// What to set, in order; empty if nothing needs setting.
    ///
    /// Times of the kernel's probes are rounded up to its whole seconds.
    pub fn settings(&self) -> Vec<Setting> {
        let mut settings = match self.mechanism {
            Mechanism::None => Vec::new(),
            Mechanism::Tcp => self.of_the_kernel(),
            Mechanism::Heartbeat => self.of_heartbeats(),
            Mechanism::Lazy => self.of_the_reaper(),
            Mechanism::Write => {
                let every =
                    |s| setting(SettingPlace::Program, "write a message every", format!("{s} s"));
                self.interval_s.map(every).into_iter().collect()
            }
        };
        if let Some(limit) = self.user_timeout_s {
            let place = settings.iter().take_while(|one| one.place == SettingPlace::Socket).count();
            settings.insert(place, setting(SettingPlace::Socket, "TCP_USER_TIMEOUT", ms(limit)));
        }
        settings
    }

    fn of_the_kernel(&self) -> Vec<Setting> {
        let values = [
            ("TCP_KEEPIDLE", "net.ipv4.tcp_keepalive_time", self.idle_s),
            ("TCP_KEEPINTVL", "net.ipv4.tcp_keepalive_intvl", self.interval_s),
            ("TCP_KEEPCNT", "net.ipv4.tcp_keepalive_probes", self.probes.map(f64::from)),
        ];
        let whole = |value: f64| format!("{}", value.ceil());
        let on = setting(SettingPlace::Socket, "SO_KEEPALIVE", "1".to_owned());
        let options = values.iter().filter_map(|(option, _, value)| {
            Some(setting(SettingPlace::Socket, option, whole((*value)?)))
        });
        let sysctls = values.iter().filter_map(|(_, sysctl, value)| {
            Some(setting(SettingPlace::Sysctl, sysctl, whole((*value)?)))
        });
        std::iter::once(on).chain(options).chain(sysctls).collect()
    }

    fn of_heartbeats(&self) -> Vec<Setting> {
        let timing = self.idle_s.zip(self.answer_within_s).map(|(idle, within)| {
            let (idle, within) = (duration(idle), duration(within));
            let value = format!("Timing::new({idle}, {within})");
            setting(SettingPlace::Library, "timing", value)
        });
        let tick = self.tick_s.map(|tick| setting(SettingPlace::Library, "tick", duration(tick)));
        timing.into_iter().chain(tick).collect()
    }

    fn of_the_reaper(&self) -> Vec<Setting> {
        let Some(most) = self.most else { return Vec::new() };
        let reaping = setting(SettingPlace::Library, "reaping", format!("Reaping::new({most})"));
        let within = self
            .answer_within_s
            .map(|s| setting(SettingPlace::Library, "reaping.answer_within", duration(s)));
        [reaping].into_iter().chain(within).collect()
    }
}

fn setting(place: SettingPlace, name: &str, value: String) -> Setting {
    Setting { place, name: name.to_owned(), value }
}

fn ms(s: f64) -> String {
    format!("{}", (s * 1000.0).round())
}

fn duration(s: f64) -> String {
    format!("Duration::from_millis({})", ms(s))
}
