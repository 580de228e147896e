//! The files of a site, laid out for Apache and nginx, and the PHP that takes its time for some.
//!
//! A file with a server time is a PHP script of its own in a folder beside the documents: it waits, and then
//! sends the file. Nothing of a folder of the user's is ever run.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use tcptoll_core::page::site::{File, Site};

use super::php;
use crate::files::RunFolder;

/// Where a server that serves a site answers the question whether it is there.
pub(super) const READY_PATH: &str = "/tcptoll-ready";

/// PHP workers, at most: a browser has no more than 100 requests under way on one HTTP/2 connection. Each takes some
/// 10 MB.
const PHP_WORKERS_MAX: usize = 100;

/// PHP workers, at least: visitors may overlap.
const PHP_WORKERS_MIN: usize = 8;

/// Content types of a folder's files, by extension.
const TYPES: [(&str, &str); 31] = [
    ("html", "text/html"),
    ("htm", "text/html"),
    ("css", "text/css"),
    ("js", "text/javascript"),
    ("mjs", "text/javascript"),
    ("json", "application/json"),
    ("map", "application/json"),
    ("webmanifest", "application/manifest+json"),
    ("xml", "text/xml"),
    ("txt", "text/plain"),
    ("csv", "text/csv"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("avif", "image/avif"),
    ("ico", "image/x-icon"),
    ("bmp", "image/bmp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("ttf", "font/ttf"),
    ("otf", "font/otf"),
    ("eot", "application/vnd.ms-fontobject"),
    ("wasm", "application/wasm"),
    ("pdf", "application/pdf"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("webm", "video/webm"),
    ("bin", "application/octet-stream"),
];

/// Content types that are compressed where compression is asked for.
pub(super) const COMPRESSED: [&str; 8] = [
    "text/html",
    "text/css",
    "text/javascript",
    "text/plain",
    "text/xml",
    "application/json",
    "application/manifest+json",
    "image/svg+xml",
];

/// A site whose files are where a server finds them.
pub(super) struct Laid {
    /// Document root.
    pub(super) root: PathBuf,
    /// Extension and content type of its files.
    pub(super) types: Vec<(String, String)>,
    /// Paths that PHP answers, each with its script.
    pub(super) scripts: Vec<(String, PathBuf)>,
    /// What runs PHP, if a path needs it.
    pub(super) php: Option<Php>,
    pub(super) http2: bool,
    pub(super) compress: bool,
}

/// What runs PHP.
pub(super) enum Php {
    /// Processes of its own.
    Fpm(Box<Fpm>),
    /// The web server's workers.
    Module,
}

/// PHP-FPM, ready to be started.
pub(super) struct Fpm {
    pub(super) command: Option<Command>,
    pub(super) socket: PathBuf,
    pub(super) version: String,
}

impl Fpm {
    /// Whether it takes connections.
    pub(super) fn listens(&self) -> bool {
        UnixStream::connect(&self.socket).is_ok()
    }
}

/// Writes a site's files into the run folder.
///
/// Errors: a sentence for the user.
///
/// `in_worker`: PHP is run by the web server's workers, each of which allocates this many bytes more.
pub(super) fn lay(
    site: &Site,
    tls: bool,
    in_worker: Option<u64>,
    folder: &RunFolder,
) -> Result<Laid, String> {
    site.check()?;
    if site.http2 && !tls {
        return Err("HTTP/2 needs TLS, because browsers use HTTP/2 over TLS only".to_owned());
    }
    make_folder(&folder.file("ready"))?;
    folder.write("ready/ready.txt", b"ready\n")?;
    if let Some(path) = &site.folder {
        return Ok(Laid {
            root: document_root(path)?,
            types: TYPES.map(|(name, kind)| (name.to_owned(), kind.to_owned())).to_vec(),
            scripts: Vec::new(),
            php: None,
            http2: site.http2,
            compress: site.compress,
        });
    }
    let root = folder.file("site");
    let mut types: Vec<(String, String)> = Vec::new();
    let mut scripts = Vec::new();
    make_folder(&root)?;
    if site.is_dynamic() {
        make_folder(&folder.file("php"))?;
    }
    for (number, file) in site.files.iter().enumerate() {
        // `check` has seen to it that the path stays below the root.
        let at = root.join(file.path.trim_start_matches('/'));
        make_folder(at.parent().unwrap_or(&root))?;
        std::fs::write(&at, file.content.made()).map_err(|error| said(&at, &error))?;
        add_type(&mut types, file)?;
        if file.server_time_ns > 0 {
            let script = {
                let text = script(file, &at, in_worker.unwrap_or_default());
                folder.write(&format!("php/{number}.php"), text.as_bytes())?
            };
            scripts.push((file.path.clone(), script));
        }
    }
    let php = match in_worker {
        _ if scripts.is_empty() => None,
        None => Some(Php::Fpm(Box::new(prepare_fpm(folder, scripts.len())?))),
        Some(_) => {
            let lines = php::SETTINGS.map(|line| format!("{line}\n")).concat();
            folder.write("php/php.ini", (lines + "extension=ffi\nffi.enable=1\n").as_bytes())?;
            Some(Php::Module)
        }
    };
    Ok(Laid { root, types, scripts, php, http2: site.http2, compress: site.compress })
}

fn said(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn make_folder(path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(path).map_err(|error| said(path, &error))
}

/// The folder itself, without links, in words that a configuration can hold.
fn document_root(path: &str) -> Result<PathBuf, String> {
    let root = std::fs::canonicalize(path).map_err(|error| format!("the site {path}: {error}"))?;
    if !root.is_dir() {
        return Err(format!("the site {path} is not a folder"));
    }
    let text = root.to_str().filter(|text| !text.contains(['"', '\\', '$', '{', '}', ';']));
    if text.is_none_or(|text| text.chars().any(char::is_control)) {
        return Err(format!(
            "the site {path:?}: its path has characters that server configurations cannot hold"
        ));
    }
    if root.parent().is_none() {
        return Err("the site /: the whole file system is not served; name a folder".to_owned());
    }
    Ok(root)
}

/// The server knows types by extension.
fn add_type(types: &mut Vec<(String, String)>, file: &File) -> Result<(), String> {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    let Some((_, extension)) = name.rsplit_once('.') else {
        return Err(format!("{}: a file of a site needs an extension for its type", file.path));
    };
    match types.iter().find(|(known, _)| known == extension) {
        None => types.push((extension.to_owned(), file.content_type.clone())),
        Some((_, known)) if *known == file.content_type => {}
        Some((_, known)) => {
            return Err(format!(
                "{}: all files of one extension have one type, and .{extension} is already {known}",
                file.path
            ));
        }
    }
    Ok(())
}

/// Waits, and then sends the file.
fn script(file: &File, at: &Path, ballast: u64) -> String {
    // Neither path nor type has a quotation mark or a backslash: `check`, and the run folder is ours.
    format!(
        "<?php\n{}usleep({});\nheader('Content-Type: {}');\nheader('Content-Length: {}');\nreadfile('{}');\n",
        php::ballast(ballast),
        file.server_time_ns.div_ceil(1_000),
        file.content_type,
        file.content.bytes(),
        at.display()
    )
}

fn prepare_fpm(folder: &RunFolder, scripts: usize) -> Result<Fpm, String> {
    let (program, version) = php::find()?;
    let path = folder.path().display();
    let workers = scripts.clamp(PHP_WORKERS_MIN, PHP_WORKERS_MAX);
    let pool = format!(
        "[global]\nerror_log = {path}/log\nlog_level = warning\ndaemonize = no\n\
         [site]\nlisten = {path}/php.sock\npm = static\npm.max_children = {workers}\n\
         catch_workers_output = yes\n"
    );
    let file = folder.write("fpm.conf", pool.as_bytes())?;
    let mut command = Command::new(program);
    // Nothing of the machine's own php.ini is read.
    command.arg("-n").arg("-F").arg("-y").arg(file);
    for setting in php::SETTINGS {
        command.arg("-d").arg(setting);
    }
    Ok(Fpm { command: Some(command), socket: folder.file("php.sock"), version })
}

#[cfg(test)]
mod tests {
    use tcptoll_core::page::resource::Kind;
    use tcptoll_core::page::site::{Content, MadePage};

    use super::*;

    fn page(page_time_ns: u64) -> Site {
        let page = MadePage {
            resources: 2,
            kind: Kind::Stylesheet,
            resource_bytes: 100,
            page_bytes: 1_000,
            page_time_ns,
            resource_time_ns: 0,
            shards: Vec::new(),
            tls: false,
            port: 80,
        };
        Site::of_page(&page).unwrap()
    }

    #[test]
    fn files_are_written_below_the_run_folder_with_a_type_each() {
        let folder = RunFolder::temporary().unwrap();
        let laid = lay(&page(0), false, None, &folder).unwrap();
        assert!(laid.root.starts_with(folder.path()));
        assert_eq!(std::fs::read(laid.root.join("r/2.css")).unwrap().len(), 100);
        let types = [("html", "text/html"), ("css", "text/css")];
        assert_eq!(laid.types, types.map(|(name, kind)| (name.to_owned(), kind.to_owned())));
        assert!(laid.scripts.is_empty() && laid.php.is_none());
    }

    #[test]
    fn http2_without_tls_and_two_types_of_one_extension_are_refused() {
        let folder = RunFolder::temporary().unwrap();
        let site = Site { http2: true, ..page(0) };
        assert!(lay(&site, false, None, &folder).err().unwrap().contains("needs TLS"));
        let mut odd = page(0);
        odd.files[2].content_type = "text/plain".to_owned();
        assert!(lay(&odd, false, None, &folder).err().unwrap().contains("one type"));
    }

    #[test]
    fn a_folder_that_is_none_or_has_an_odd_name_is_refused() {
        let folder = RunFolder::temporary().unwrap();
        let served = |path: &Path| {
            let path = Some(path.to_str().unwrap().to_owned());
            lay(&Site { folder: path, ..Site::default() }, false, None, &folder)
        };
        assert_eq!(served(folder.path()).unwrap().root, folder.path().canonicalize().unwrap());
        assert!(served(Path::new("/nonexistent")).err().unwrap().contains("/nonexistent"));
        assert!(served(Path::new("/")).err().unwrap().contains("whole file system"));
        let odd = folder.file("a\"b");
        std::fs::create_dir(&odd).unwrap();
        assert!(served(&odd).err().unwrap().contains("characters"));
        let file = folder.write("file", b"x").unwrap();
        assert!(served(&file).err().unwrap().contains("not a folder"));
    }

    #[test]
    fn a_script_waits_whole_microseconds_and_sends_the_files_own_length() {
        let file = File {
            path: "/index.html".to_owned(),
            content: Content::Bytes(7),
            content_type: "text/html".to_owned(),
            server_time_ns: 1_500_001,
        };
        let text = script(&file, Path::new("/run/site/index.html"), 0);
        assert!(text.contains("usleep(1501);") && text.contains("Content-Length: 7"), "{text}");
    }
}
