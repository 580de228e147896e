//! How is a file of the user's read whole without trusting its length? A device has no length, and
//! may have no end. How is it read once for all arms of a run? And which file may be written over?
//!
//! `RunFolder` is where the files of a server or a browser are while it runs.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tcptoll_kernel::namespace::mount_memory;

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

/// The longest line of a record of lines: 1,024 listeners and 256 diagnoses take less than 0.3 MB.
pub const LINE_MAX: u64 = 4 << 20;

/// The first line of a file, cut at [`LINE_MAX`]; empty of what is no regular file.
///
/// Errors: it cannot be read.
pub fn first_line(mut file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // A device may have no end, and a pipe cannot be read twice.
    if file.metadata()?.is_file() {
        file.seek(SeekFrom::Start(0))?;
        BufReader::new(file.take(LINE_MAX)).read_until(b'\n', &mut bytes)?;
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

/// Last line of a page or a picture that this program writes.
const MARKUP_MARK: &str = "<!-- written by tcptoll -->\n";
/// Last line of a configuration that this program writes.
const COMMENT_MARK: &str = "# written by tcptoll\n";
/// How all others begin that it writes: records, found settings, tables.
const BEGINNINGS: [&str; 6] = [
    "{\"line\":\"header\"",
    "{\"line\":\"merged\"",
    "{\"line\":\"watch-header\"",
    "{\"tune_version\":",
    "kind,experiment,arm,against,",
    "time,at_s,interval_s,looks,kind,",
];
/// What a capture has near its beginning: the program that made it.
pub const MAKER: &str = "tcptoll";
/// A capture and a manual page name their maker within this number of bytes.
const NAMED_WITHIN: u64 = 128;

/// What a text that is written to a file ends with, so that the file can be written over later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Nothing: its beginning says whose it is.
    Beginning,
    /// A comment of HTML, SVG or Markdown.
    Markup,
    /// A comment of a configuration file.
    Comment,
}

/// Writes a text to a file that [`open_own`] opens.
///
/// Errors: those of [`open_own`] and of writing.
pub fn write_own(path: &Path, text: &str, mark: Mark) -> io::Result<()> {
    let mut file = open_own(path)?;
    empty(&file)?;
    let mark = match mark {
        Mark::Beginning => "",
        Mark::Markup => MARKUP_MARK,
        Mark::Comment => COMMENT_MARK,
    };
    let line_ends = mark.is_empty() || text.is_empty() || text.ends_with('\n');
    let between = if line_ends { "" } else { "\n" };
    file.write_all(format!("{text}{between}{mark}").as_bytes())
}

/// Opens a file for writing: a new one, an empty one, a pipe or a device, or one that this program has written. Its
/// content is kept until [`empty`]. A symbolic link counts as the file that it leads to.
///
/// Errors: with [`io::ErrorKind::AlreadyExists`] another program has written it; else those of opening.
pub fn open_own(path: &Path) -> io::Result<File> {
    // A pipe's reading end is another program's.
    let is_file = path.metadata().map_or(true, |about| about.is_file());
    let options = || File::options().read(is_file).write(true).clone();
    let mut file = options().create(true).truncate(false).open(path)?;
    if is_own(&mut file)? {
        return Ok(file);
    }
    let why = "tcptoll did not write this file. Name another file, or remove this one";
    Err(io::Error::new(io::ErrorKind::AlreadyExists, why))
}

/// Drops the content of a file; a pipe or a device has none.
pub fn empty(file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() { file.set_len(0) } else { Ok(()) }
}

/// Whether nothing of another program is lost where this file is written over.
fn is_own(file: &mut File) -> io::Result<bool> {
    let about = file.metadata()?;
    if !about.is_file() || about.len() == 0 {
        return Ok(true);
    }
    let mut part = |from: SeekFrom, most: u64| -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        file.seek(from)?;
        (&mut *file).take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let length = about.len();
    let mark = MARKUP_MARK.len() as u64;
    let last = part(SeekFrom::Start(length.saturating_sub(mark)), mark)?;
    let first = part(SeekFrom::Start(0), NAMED_WITHIN)?;
    file.rewind()?;
    let names_maker = |before: &[u8]| {
        first.starts_with(before) && first.windows(MAKER.len()).any(|word| word == MAKER.as_bytes())
    };
    Ok([MARKUP_MARK, COMMENT_MARK].iter().any(|mark| last.ends_with(mark.as_bytes()))
        || BEGINNINGS.iter().any(|beginning| first.starts_with(beginning.as_bytes()))
        || names_maker(&PCAPNG)
        || names_maker(MANUAL))
}

/// How a capture begins.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// How a manual page begins that clap made.
const MANUAL: &[u8] = b".ie \\n(.g .ds Aq ";

/// Whether a file was longer than it may be.
pub fn is_too_large(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::FileTooLarge
}

/// Folders of the Filesystem Hierarchy Standard that are there and mostly empty. One that holds
/// something is left alone: a capture might be written there.
const MOSTLY_EMPTY: [&str; 6] = ["/mnt", "/media", "/srv", "/opt", "/var/local", "/usr/games"];

/// A folder of the kernel's that no server and no client looks into.
const NEVER_NEEDED: &str = "/sys/kernel/debug";

/// A folder of one program's own; removed when dropped.
///
/// A tmpfs inside the lab's mount namespace, mounted over an empty folder such as `/mnt`: it goes with the
/// lab's last process, also after `kill -9`, and nobody outside ever sees it.
#[derive(Debug)]
pub(crate) struct RunFolder(PathBuf);

impl RunFolder {
    /// Makes one: in memory, or among the temporary files where a container refuses the mount.
    pub(crate) fn make() -> Result<Self, String> {
        static MEMORY: OnceLock<Option<PathBuf>> = OnceLock::new();
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = match MEMORY.get_or_init(mounted) {
            Some(root) => root.join(format!("server-{number}")),
            None => return Self::temporary(),
        };
        Self::create(path)
    }

    /// Makes one among the temporary files.
    pub(crate) fn temporary() -> Result<Self, String> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("tcptoll-server-{}-{number}", std::process::id());
        Self::create(std::env::temp_dir().join(name))
    }

    fn create(path: PathBuf) -> Result<Self, String> {
        // Not readable by others: the key of the certificate is in it.
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }

    /// Path of a file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file into it and gives its path.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> Result<PathBuf, String> {
        let path = self.file(name);
        fs::write(&path, content).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn mounted() -> Option<PathBuf> {
    let is_empty =
        |path: &&str| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    MOSTLY_EMPTY
        .into_iter()
        .filter(is_empty)
        .chain([NEVER_NEEDED])
        .find(|path| mount_memory(Path::new(path)).is_ok())
        .map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_this_program_wrote_is_written_over_also_behind_a_symbolic_link() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for own in
            ["", "{\"line\":\"header\",", "{\"tune_version\":1", ".ie \\n(.g .ds Aq x tcptoll"]
        {
            std::fs::write(&file, own).unwrap();
            write_own(&link, "page\n", Mark::Markup).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("page\n{MARKUP_MARK}"));
            // A shorter text leaves nothing of a longer one behind.
            write_own(&file, "", Mark::Comment).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), COMMENT_MARK);
            write_own(&file, "", Mark::Markup).unwrap();
        }
        for other in ["x", "<html>tcptoll</html>", "written by tcptoll\n", "# tcptoll\nkey: 1\n"] {
            std::fs::write(&file, other).unwrap();
            for path in [&file, &link] {
                let error = write_own(path, "page", Mark::Markup).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{other}");
                assert_eq!(std::fs::read_to_string(&file).unwrap(), other);
            }
        }
        write_own(Path::new("/dev/null"), "page", Mark::Markup).unwrap();
    }

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
