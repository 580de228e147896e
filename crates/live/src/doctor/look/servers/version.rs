//! The version of a server, from the text inside its program: nothing is run.

use std::fs::File;
use std::io::Read;

use crate::doctor::Program;

/// So much of a program is looked through, at most.
const PROGRAM_MAX: u64 = 40 << 20;
/// Longest text that is looked for.
const TEXT_MAX: usize = 48;

/// What stands next to the version.
enum Mark {
    Before(&'static [u8]),
    After(&'static [u8]),
}

/// The version in a program, if its text has it.
pub(super) fn version(program: Program, file: File) -> Option<String> {
    let mark = match program {
        Program::Nginx => Mark::Before(b"nginx/"),
        Program::Apache => Mark::Before(b"Apache/"),
        Program::PhpFpm => Mark::Before(b"PHP/"),
        Program::Mariadb => Mark::After(b"-MariaDB"),
        // Their text has versions of other things too.
        Program::Redis | Program::Haproxy => return None,
    };
    let mut file = file.take(PROGRAM_MAX);
    let mut chunk = vec![0; 1 << 18];
    let mut kept = 0;
    loop {
        let read = file.read(chunk.get_mut(kept..)?).ok()?;
        if read == 0 {
            return None;
        }
        let text = chunk.get(..kept + read)?;
        if let Some(version) = within(&mark, text) {
            return Some(version);
        }
        // A text may begin in one part and end in the next.
        kept = text.len().min(TEXT_MAX);
        let from = text.len() - kept;
        let end = text.len();
        chunk.copy_within(from..end, 0);
    }
}

fn within(mark: &Mark, text: &[u8]) -> Option<String> {
    let bytes = match mark {
        Mark::Before(bytes) | Mark::After(bytes) => bytes,
    };
    let last = *bytes.last()?;
    let ends = text.iter().enumerate().filter(|&(_, &byte)| byte == last).map(|(at, _)| at + 1);
    for end in ends {
        let Some(begin) = end.checked_sub(bytes.len()) else { continue };
        if text.get(begin..end) != Some(bytes) {
            continue;
        }
        let is_version = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
        let version: Vec<u8> = match mark {
            Mark::Before(_) => text
                .get(end..)?
                .iter()
                .copied()
                .take(16)
                .take_while(|byte| is_version(byte))
                .collect(),
            Mark::After(_) => {
                let mut back: Vec<u8> = text
                    .get(..begin)?
                    .iter()
                    .rev()
                    .copied()
                    .take(16)
                    .take_while(|byte| is_version(byte))
                    .collect();
                back.reverse();
                back
            }
        };
        let parts = version.split(|&byte| byte == b'.');
        if parts.clone().count() == 3 && parts.clone().all(|part| !part.is_empty()) {
            return String::from_utf8(version).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_next_to_its_mark_alone() {
        let nginx = Mark::Before(b"nginx/");
        assert_eq!(within(&nginx, b"\0nginx/%s nginx/1.22.1\0").as_deref(), Some("1.22.1"));
        assert_eq!(within(&nginx, b"/etc/nginx/conf.d 1.2.3"), None);
        let mariadb = Mark::After(b"-MariaDB");
        assert_eq!(within(&mariadb, b"\x0010.11.14-MariaDB-0\0").as_deref(), Some("10.11.14"));
        assert_eq!(within(&mariadb, b"-MariaDB"), None);
    }
}
