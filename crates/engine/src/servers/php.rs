//! PHP-FPM's program: where it is, and whether it is young enough.

use std::path::PathBuf;

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
