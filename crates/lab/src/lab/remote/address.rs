//! Where a host of the user's is: `ssh://[USER@]HOST[:PORT]`.

use std::fmt;

use tcptoll_core::experiment::options::SSH;

/// A host that ssh reaches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SshAddress {
    /// Who logs in. None: ssh's configuration says.
    user: Option<String>,
    /// A name, an address, or a name of the user's ssh configuration.
    host: String,
    /// None: ssh's configuration says.
    port: Option<u16>,
}

impl SshAddress {
    /// Reads it.
    ///
    /// Errors: a sentence without the text itself.
    pub fn parse(text: &str) -> Result<Self, String> {
        let shape = || "write ssh://[USER@]HOST[:PORT]".to_owned();
        let rest = text.strip_prefix(SSH).ok_or_else(shape)?;
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, rest),
        };
        let (host, port) = match place.strip_prefix('[') {
            Some(bracketed) => {
                let (host, rest) = bracketed.split_once(']').ok_or_else(shape)?;
                (
                    host,
                    if rest.is_empty() {
                        None
                    } else {
                        Some(rest.strip_prefix(':').ok_or_else(shape)?)
                    },
                )
            }
            None => match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            },
        };
        let port =
            port.map(|port| port.parse().ok().filter(|&port: &u16| port > 0).ok_or_else(shape));
        // ssh takes a word that begins with a minus for an option of its own.
        let plain = |word: &str, further: &str| {
            let letter = |c: char| c.is_ascii_alphanumeric() || further.contains(c);
            !word.is_empty() && !word.starts_with('-') && word.chars().all(letter)
        };
        if !plain(host, "._-:%") || !user.is_none_or(|user| plain(user, "._-")) {
            return Err(shape());
        }
        Ok(Self { user: user.map(str::to_owned), host: host.to_owned(), port: port.transpose()? })
    }

    /// The words for ssh: `-p PORT USER@HOST`.
    pub fn words(&self) -> Vec<String> {
        let port = self.port.map(|port| ["-p".to_owned(), port.to_string()]);
        let host = match &self.user {
            Some(user) => format!("{user}@{}", self.host),
            None => self.host.clone(),
        };
        port.into_iter().flatten().chain([host]).collect()
    }
}

impl fmt::Display for SshAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SSH)?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_written_alike() {
        for (text, words) in [
            ("ssh://b", "b"),
            ("ssh://user@b", "user@b"),
            ("ssh://user@b.example:2222", "-p 2222 user@b.example"),
            ("ssh://[2001:db8::1]:22", "-p 22 2001:db8::1"),
            ("ssh://u@[fe80::1%3]", "u@fe80::1%3"),
        ] {
            let address = SshAddress::parse(text).unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(address.words().join(" "), words);
        }
    }

    #[test]
    fn what_ssh_or_a_shell_would_take_for_something_else_is_refused() {
        for text in [
            "b",
            "user@b",
            "ssh://",
            "ssh://-oProxyCommand=x",
            "ssh://-l@b",
            "ssh://a b",
            "ssh://b:0",
            "ssh://b:99999",
            "ssh://b;id",
            "ssh://b/x",
            "ssh://$(id)@b",
            "ssh://[::1",
            "ssh://u:p@b",
        ] {
            assert!(SshAddress::parse(text).is_err(), "{text}");
        }
    }
}
