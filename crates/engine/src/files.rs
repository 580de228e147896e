//! How is a file of the user's read whole without trusting its length? A device has no length, and
//! may have no end. And how is it read once for all arms of a run?

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::rc::Rc;

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

/// What was read from files, each once, for all arms that name them.
#[derive(Default)]
pub struct Shared(BTreeMap<(String, TypeId), Rc<dyn Any>>);

impl Shared {
    /// What `read` makes of the file of this name, or made of it before.
    ///
    /// Errors: those of `read`; nothing is kept then.
    pub fn read<T: Any, E>(
        &mut self,
        file: &str,
        read: impl FnOnce(&Path) -> Result<T, E>,
    ) -> Result<Rc<T>, E> {
        let key = (file.to_owned(), TypeId::of::<T>());
        if let Some(known) = self.0.get(&key).cloned().and_then(|known| known.downcast().ok()) {
            return Ok(known);
        }
        let content = Rc::new(read(Path::new(file))?);
        self.0.insert(key, Rc::clone(&content) as Rc<dyn Any>);
        Ok(content)
    }
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

    #[test]
    fn a_file_is_read_once_for_all_that_make_the_same_of_it() {
        let mut shared = Shared::default();
        let refused: Result<Rc<u32>, &str> = shared.read("a", |_| Err("not there"));
        assert_eq!(refused, Err("not there"));
        assert_eq!(shared.read("a", |_| Ok::<u32, &str>(7)).as_deref(), Ok(&7));
        assert_eq!(shared.read("a", |_| Err::<u32, &str>("read again")).as_deref(), Ok(&7));
        assert_eq!(shared.read("b", |_| Ok::<u32, &str>(8)).as_deref(), Ok(&8));
        let other = shared.read("a", |_| Ok::<String, &str>("text".to_owned()));
        assert_eq!(other.as_deref().map(String::as_str), Ok("text"));
    }
}
