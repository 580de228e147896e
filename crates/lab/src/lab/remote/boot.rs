//! From a login to a running agent: this program's own binary is copied once, by its content, and run.
//!
//! One command is given to ssh: a few lines for the shell, without single quotes and exclamation marks, so
//! that every login shell hands them on unchanged. It tells by lines that begin with `tcptoll-boot` how far it
//! has come; everything else that a login prints is skipped.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use tcptoll_core::experiment::options::SSH;

use super::agent::{AGENT_COMMAND, MAGIC};

/// Most bytes that a login may print before the agent speaks.
const NOISE_MAX: usize = 64 << 10;
/// A login takes no longer: somebody may have to type a password, or touch a key.
const LOGIN_LIMIT: Duration = Duration::from_mins(2);
/// A piece of the binary must be taken within this.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// What a line of the script has before its words.
const MARK: &str = "tcptoll-boot ";

/// Finds a folder of this user's from which programs may be run, and there the binary, or asks for it. What it has
/// begun to write goes with it, also if sshd hangs up.
const SCRIPT: &str = r#"umask 077; s=SUM; n=SIZE; t=; trap "rm -f \"\$t\"; exit 1" EXIT HUP INT TERM PIPE; say() { printf "tcptoll-boot %s\n" "$*"; };
whole() { [ "$(($(wc -c <"$1")))" = "$n" ] || return 1; command -v sha256sum >/dev/null || return 0; case "$(sha256sum <"$1")" in "$s"*) ;; *) return 1;; esac; };
for d in "${XDG_CACHE_HOME:-$HOME/.cache}/tcptoll" "/dev/shm/tcptoll-$(id -u)" "${TMPDIR:-/tmp}/tcptoll-$(id -u)"; do
mkdir -p "$d" 2>/dev/null; [ -d "$d" ] && [ -O "$d" ] || continue; [ -L "$d" ] && continue; chmod 700 "$d" || continue;
t="$d/.may-run.$$"; { : >"$t"; } 2>/dev/null || continue; chmod 700 "$t"; "$t" 2>/dev/null; r=$?; rm -f "$t"; [ "$r" = 0 ] || continue;
f="$d/tcptoll-$s"; if [ -f "$f" ] && [ -O "$f" ] && [ -x "$f" ] && whole "$f"; then say have; exec "$f" RUN; fi;
say need "$(uname -m)"; read -r go || exit 1; [ "$go" = send ] || exit 1;
t="$d/.new.$$"; head -c "$n" 2>/dev/null >"$t"; [ "$(($(wc -c <"$t")))" = "$n" ] || { say full "$d"; exit 1; };
whole "$t" || { say damaged "$d"; exit 1; };
chmod 700 "$t"; w=$("$t" --version 2>&1) || { say cannot "$w"; exit 1; };
rm -f "$d"/tcptoll-*; find "$d" -name ".new.*" -mmin +60 -exec rm -f {} + 2>/dev/null; mv "$t" "$f" || exit 1; say have; exec "$f" RUN; done; say nowhere; exit 1"#;

/// The binary to copy.
pub(super) struct Binary {
    file: File,
    bytes: u64,
    /// First half of its SHA-256, in hexadecimal.
    sum: String,
}

impl Binary {
    /// Reads it once.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut sum = ring::digest::Context::new(&ring::digest::SHA256);
        let mut piece = vec![0; 1 << 20];
        let mut bytes = 0;
        loop {
            match file.read(&mut piece)? {
                0 => break,
                read => {
                    sum.update(&piece[..read]);
                    bytes += read as u64;
                }
            }
        }
        let mut name = String::new();
        for byte in &sum.finish().as_ref()[..16] {
            let _ = write!(name, "{byte:02x}");
        }
        Ok(Self { file, bytes, sum: name })
    }

    /// The command that finds it on the host, or asks for it, and becomes an agent.
    pub(super) fn command(&self, dead_after: Duration) -> String {
        let script = SCRIPT
            .replace("SUM", &self.sum)
            .replace("SIZE", &self.bytes.to_string())
            .replace("RUN", &agent(dead_after))
            .replace('\n', " ");
        format!("exec sh -c '{script}'")
    }

    fn send(&self, stream: &UnixStream) -> Result<(), String> {
        let failed = |error: io::Error| format!("copying the program failed: {error}");
        let mut file = &self.file;
        io::Seek::rewind(&mut file).map_err(failed)?;
        stream.set_write_timeout(Some(WRITE_LIMIT)).map_err(failed)?;
        let mut to = stream;
        to.write_all(b"send\n").map_err(failed)?;
        io::copy(&mut file, &mut to).map(drop).map_err(failed)
    }
}

/// The command that makes an agent of a program that is there already.
pub(super) fn command_of(program: &str, dead_after: Duration) -> Result<String, String> {
    if program.is_empty() || program.contains(['\'', '!', '\n']) {
        return Err("write the path of tcptoll on that host, without quotes".to_owned());
    }
    Ok(format!("exec '{program}' {}", agent(dead_after)))
}

fn agent(dead_after: Duration) -> String {
    format!("{AGENT_COMMAND} {}", dead_after.as_millis())
}

/// Speaks with the login until the agent has begun; what follows its magic is left in the stream.
///
/// Errors: a sentence for the user, without the host's name.
pub(super) fn begin(stream: &UnixStream, binary: Option<&Binary>) -> Result<(), String> {
    let mut login = Login { stream, begun: Instant::now(), printed: Vec::new(), line: Vec::new() };
    // A host without room stops reading, and says why.
    let mut not_sent = None;
    loop {
        let line = match (login.next_line(), not_sent.take()) {
            (Ok(None), _) => return Ok(()),
            (Ok(Some(line)), why) => {
                not_sent = why;
                line
            }
            (Err(_), Some(why)) | (Err(why), None) => return Err(why),
        };
        let Some((_, said)) = line.rsplit_once(MARK) else { continue };
        let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
        match (word, binary) {
            ("have", _) => {}
            ("need", Some(binary)) => {
                if rest != std::env::consts::ARCH {
                    return Err(format!(
                        "its machine is {rest}, and this program is for {}: install tcptoll there, and name it \
                         with --remote-binary PATH",
                        std::env::consts::ARCH
                    ));
                }
                not_sent = binary.send(stream).err();
            }
            ("full", _) => return Err(format!("there is no room for the program in {rest}")),
            ("damaged", _) => {
                return Err(format!("the program arrived in {rest} with other content: try again"));
            }
            ("cannot", _) => {
                return Err(format!(
                    "the program does not run there ({}): install tcptoll for that system, and name it with \
                     --remote-binary PATH",
                    shown(rest.as_bytes())
                ));
            }
            _ => {
                return Err("no folder of this user's lets programs run, of ~/.cache/tcptoll, /dev/shm and /tmp: \
                            install tcptoll there, and name it with --remote-binary PATH"
                    .to_owned());
            }
        }
    }
}

/// What a login prints.
struct Login<'a> {
    stream: &'a UnixStream,
    begun: Instant,
    printed: Vec<u8>,
    line: Vec<u8>,
}

impl Login<'_> {
    /// The next line, or None: the agent's magic.
    fn next_line(&mut self) -> Result<Option<String>, String> {
        self.line.clear();
        loop {
            let byte = self.byte()?;
            self.printed.push(byte);
            self.line.push(byte);
            if self.line.ends_with(MAGIC) {
                return Ok(None);
            }
            if byte == b'\n' {
                let line = String::from_utf8_lossy(&self.line);
                return Ok(Some(line.trim_end().to_owned()));
            }
            if self.printed.len() >= NOISE_MAX {
                return Err(format!(
                    "the login printed {NOISE_MAX} bytes and no agent spoke; it began with: {}",
                    shown(&self.printed)
                ));
            }
        }
    }

    /// One byte at a time: what follows the magic belongs to the relay.
    fn byte(&self) -> Result<u8, String> {
        let left = LOGIN_LIMIT.saturating_sub(self.begun.elapsed());
        if left.is_zero() {
            return Err(format!("the login took longer than {} s", LOGIN_LIMIT.as_secs()));
        }
        let failed = |error: io::Error| format!("reading from ssh failed: {error}");
        self.stream.set_read_timeout(Some(left)).map_err(failed)?;
        let mut byte = [0];
        let mut stream = self.stream;
        match stream.read(&mut byte) {
            Ok(0) => Err(match self.printed.as_slice() {
                [] => "ssh ended before the program began there".to_owned(),
                printed => format!("the login ended; it printed: {}", shown(printed)),
            }),
            Ok(_) => Ok(byte[0]),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                Err(format!("the login took longer than {} s", LOGIN_LIMIT.as_secs()))
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.byte(),
            Err(error) => Err(failed(error)),
        }
    }
}

/// What somebody else printed, on one line and without control characters, at most 200 of them.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(2_000)]).into_owned();
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().filter(|c| !c.is_control()).take(200).collect()
}

/// A host that ssh reaches: `ssh://[USER@]HOST[:PORT]`.
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

    fn begun(printed: &[u8]) -> Result<(), String> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(printed).unwrap();
        drop(theirs);
        begin(&ours, None)
    }

    #[test]
    fn noise_of_a_login_is_skipped_until_the_agent_speaks() {
        begun(b"Welcome!\nno line feed heretcptoll-agent-1\n").unwrap();
        begun(b"motd\ntcptoll-boot have\ntcptoll-agent-1\n").unwrap();
        // The last line of what a login prints may have no end.
        assert!(begun(b"motdtcptoll-boot nowhere\n").unwrap_err().contains("no folder"));
    }

    #[test]
    fn a_login_that_prints_for_ever_is_refused_with_its_beginning() {
        let error = begun(&b"y\n".repeat(NOISE_MAX)).unwrap_err();
        assert!(error.contains("65536 bytes") && error.contains("y y y"), "{error}");
    }

    #[test]
    fn a_login_that_ends_is_told_with_what_it_printed() {
        let error = begun(b"This account is \x1b[31mnot available.\n").unwrap_err();
        assert_eq!(error, "the login ended; it printed: This account is [31mnot available.");
        assert_eq!(begun(b"").unwrap_err(), "ssh ended before the program began there");
    }

    #[test]
    fn what_keeps_the_program_from_running_names_a_remedy() {
        for (line, part) in [
            ("nowhere", "--remote-binary"),
            ("full /home/u/.cache/tcptoll", "no room"),
            ("cannot Exec format error", "(Exec format error)"),
        ] {
            let error = begun(format!("tcptoll-boot {line}\n").as_bytes()).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn the_script_passes_through_every_login_shell() {
        assert!(!SCRIPT.contains(['\'', '!']));
        let file = tempfile::NamedTempFile::new().unwrap();
        let binary = Binary::read(file.path()).unwrap();
        assert_eq!(binary.sum, "e3b0c44298fc1c149afbf4c8996fb924");
        let command = binary.command(Duration::from_secs(10));
        assert!(!command.contains('\n') && command.ends_with("exit 1'"), "{command}");
    }

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
