//! PHP: where it is, whether it is young enough, and its settings.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::program;

/// The pool whose status can be read while all workers are stuck (`pm.status_listen`) is there since
/// PHP 8.0.
const MAJOR_MIN: u32 = 8;

/// Names of the program: Debian has the version in it.
const NAMES: [&str; 7] =
    ["php-fpm", "php-fpm8.5", "php-fpm8.4", "php-fpm8.3", "php-fpm8.2", "php-fpm8.1", "php-fpm8.0"];

/// The program, and its version: `PHP 8.2.36 (fpm-fcgi) …`.
pub(super) fn find() -> Result<(PathBuf, String), String> {
    let php = program::find(&NAMES, "php-fpm")?;
    let version = program::version(&php, "-v")?;
    if major(&version).is_none_or(|major| major < MAJOR_MIN) {
        return Err(format!("{} is {version}: PHP {MAJOR_MIN} or later is needed", php.display()));
    }
    Ok((php, version))
}

/// PHP as a module of Apache, in the folder of its modules: `libphp8.2.so`.
pub(super) fn module(modules: &Path) -> Result<PathBuf, String> {
    let is_module = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with("libphp") && path.extension() == Some(OsStr::new("so"))
    };
    let entries = std::fs::read_dir(modules).map_err(|e| format!("{}: {e}", modules.display()))?;
    let mut found: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(is_module).collect();
    found.sort();
    found.pop().ok_or_else(|| {
        "PHP as a module of Apache is not installed: apt-get install libapache2-mod-php".to_owned()
    })
}

/// Settings of PHP in either form.
pub(super) const SETTINGS: [&str; 6] = [
    "max_execution_time=0",
    "display_errors=0",
    "log_errors=1",
    "expose_php=0",
    // Else it adds a character set to the types of text.
    "default_charset=",
    "output_buffering=0",
];

/// Lines of a script that allocate this many bytes in the process that runs it, once, until the process ends.
pub(super) fn ballast(bytes: u64) -> String {
    if bytes == 0 {
        return String::new();
    }
    // The environment of C lasts as long as the process; PHP's own ends with the request.
    format!(
        "$c = FFI::cdef('char *getenv(const char *); int setenv(const char *, const char *, int); \
         void *malloc(size_t); void *memset(void *, int, size_t);');\n\
         if ($c->getenv('TCPTOLL_BALLAST') === null) {{\n  \
         $c->setenv('TCPTOLL_BALLAST', '1', 1);\n  $c->memset($c->malloc({bytes}), 1, {bytes});\n}}\n"
    )
}

/// `PHP 8.2.36 (fpm-fcgi) …` is 8.
fn major(version: &str) -> Option<u32> {
    version.strip_prefix("PHP ")?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_php_is_read_from_its_first_line() {
        assert_eq!(major("PHP 8.2.36 (fpm-fcgi) (built: Nov 18 2026 20:02:33)"), Some(8));
        assert_eq!([major("PHP 7.4.3 (cli)"), major("zsh"), major("PHP x")], [Some(7), None, None]);
    }
}
