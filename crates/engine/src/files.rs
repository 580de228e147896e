//! How is a file of the user's read whole without trusting its length? A device has no length, and
//! may have no end.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// The content of a file of at most `most` bytes.
///
/// Errors: it cannot be read; with [`io::ErrorKind::FileTooLarge`] it is longer than that. No more
/// than one byte beyond `most` is read.
pub fn read_at_most(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// Whether a file was longer than it may be.
pub fn is_too_large(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::FileTooLarge
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_too_large_and_one_of_the_greatest_length_is_not() {
        assert!(is_too_large(&read_at_most(Path::new("/dev/zero"), 1 << 16).unwrap_err()));
        let path = std::env::temp_dir().join(format!("tcptoll-files-{}", std::process::id()));
        std::fs::write(&path, b"four").unwrap();
        let (whole, short) = (read_at_most(&path, 4), read_at_most(&path, 3));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(whole.unwrap(), b"four");
        assert!(is_too_large(&short.unwrap_err()));
    }
}
