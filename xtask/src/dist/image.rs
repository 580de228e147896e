//! The container image, as the OCI image layout: the binary and the C library's files from this distribution.
//!
//! podman, skopeo and containerd read the archive as it is: `podman load -i FILE`. Its layer is compressed with zstd,
//! which they have read since 2020 and Docker since version 23: a fifth smaller than with gzip.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use super::tree::{self, Tree};
use super::{DIST, REPOSITORY, Release, STAGE, answer, executable, said, text};
use crate::process::Line;

/// Texts of this distribution that come along: the licences of the C library's files and of the list of certificate
/// authorities, as their packages have them, with what they refer to.
const COPIED: [&str; 4] = [
    "/usr/share/doc/libc6/copyright",
    "/usr/share/common-licenses/LGPL-2.1",
    "/usr/share/common-licenses/GPL-2",
    "/usr/share/doc/ca-certificates/copyright",
];
/// The certificate authorities of the distribution's package. `/etc/ssl/certs` may have others, of this machine.
const AUTHORITIES: &str = "/usr/share/ca-certificates/mozilla";
/// Where TLS looks for them.
const TRUSTED: &str = "etc/ssl/certs/ca-certificates.crt";
/// Of the packages' files: our licences, and those of the crates.
const LICENCES: &str = "usr/share/doc/tcptoll";
/// Names are first looked up in the files of the container, as everywhere.
const NAMES: &str = "hosts: files dns\n";

/// Writes the image.
pub(super) fn write(binary: &Path, tree: &Tree, release: &Release) -> anyhow::Result<()> {
    let root = rootfs(binary, tree)?;
    let layout = Path::new(STAGE).join("oci");
    let layer = Path::new(STAGE).join("layer.tar");
    said(&release.tar(&root, &layer)?.arg("."))?;
    let content = sha256(&layer)?;
    said(&Line::new("zstd").args(["--quiet", "--rm", "--ultra", "-22", "-T1", text(&layer)?]))?;
    let blobs = Blobs::new(&layout)?;
    let layer = blobs.add_file(
        Path::new(STAGE).join("layer.tar.zst").as_path(),
        "application/vnd.oci.image.layer.v1.tar+zstd",
    )?;
    let config = blobs.add(
        &json!({
            "created": release.time,
            "architecture": release.architecture.debian,
            "os": "linux",
            "config": {
                "Entrypoint": ["/usr/bin/tcptoll"],
                "Env": ["PATH=/usr/bin", "HOME=/home"],
                "WorkingDir": "/home",
                "Labels": labels(release),
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{content}")]},
            "history": [{"created": release.time, "created_by": "cargo xtask dist"}],
        }),
        "application/vnd.oci.image.config.v1+json",
    )?;
    let manifest = blobs.add(
        &json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": [layer],
        }),
        "application/vnd.oci.image.manifest.v1+json",
    )?;
    let mut manifest = manifest;
    manifest["annotations"] =
        json!({"org.opencontainers.image.ref.name": format!("tcptoll:{}", release.version)});
    manifest["platform"] = json!({"architecture": release.architecture.debian, "os": "linux"});
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    fs::write(layout.join("index.json"), index.to_string()).context("writing the index")?;
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    super::readable(&layout)?;
    let archive = Path::new(DIST).join(format!("{}.oci.tar", release.name()));
    said(&release.tar(&layout, &archive)?.args(["blobs", "index.json", "oci-layout"]))
}

fn labels(release: &Release) -> Value {
    // Of the program, and of the C library; that of the authorities, MPL-2.0, some crates have too.
    let licences = format!("{} AND LGPL-2.1-or-later", release.licence);
    json!({
        "org.opencontainers.image.title": "tcptoll",
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.revision": release.commit,
        "org.opencontainers.image.licenses": licences,
        "org.opencontainers.image.source": REPOSITORY,
    })
}

/// The files of the container.
fn rootfs(binary: &Path, tree: &Tree) -> anyhow::Result<PathBuf> {
    let root = Path::new(STAGE).join("image");
    fs::create_dir_all(&root)?;
    for folder in ["usr/bin", "etc", "home", "tmp", "proc", "sys", "dev"] {
        fs::create_dir_all(root.join(folder)).with_context(|| format!("making {folder}"))?;
    }
    let program = root.join("usr/bin/tcptoll");
    fs::copy(binary, &program).context("copying the binary")?;
    executable(&program)?;
    fs::write(root.join("etc/nsswitch.conf"), NAMES)?;
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/home:/usr/bin/tcptoll\n")?;
    let libraries = libraries(&answer(&Line::new("ldd").arg(text(binary)?))?);
    let loader = libraries.iter().any(|path| path.contains("/ld-linux"));
    ensure!(loader, "ldd names no loader: is {} linked with glibc?", binary.display());
    for library in libraries {
        let to = root.join(library.trim_start_matches('/'));
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        let owner = answer(&Line::new("dpkg-query").args(["-S", &real(&library)?]));
        if !owner.is_ok_and(|line| line.starts_with("libc6:")) {
            bail!(
                "{library} is not of Debian's package libc6: build the image on Debian or Ubuntu"
            );
        }
        fs::copy(&library, &to).with_context(|| format!("copying {library}"))?;
        executable(&to)?;
    }
    let copied = |from: &Path, to: &str| -> anyhow::Result<()> {
        let to = root.join(to);
        fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
        // The links among them lead to files.
        fs::copy(from, &to).map(drop).with_context(|| format!("copying {}", from.display()))
    };
    for file in COPIED {
        copied(Path::new(file), file.trim_start_matches('/'))?;
    }
    let trusted = root.join(TRUSTED);
    fs::create_dir_all(trusted.parent().context("a file is in a folder")?)?;
    fs::write(trusted, authorities()?).context("writing the certificate authorities")?;
    for name in tree::NOTICES {
        let place = format!("{LICENCES}/{name}");
        copied(&tree.root().join(&place), &place)?;
    }
    super::readable(&root)?;
    // Whatever number the user has that the engine runs it as, records can be written.
    for folder in ["home", "tmp"] {
        said(&Line::new("chmod").args(["1777", text(&root.join(folder))?]))?;
    }
    Ok(root)
}

/// All certificate authorities of the package, in the order of their files' names.
fn authorities() -> anyhow::Result<String> {
    let read = || format!("reading {AUTHORITIES}, of the package ca-certificates");
    let entries = fs::read_dir(AUTHORITIES).with_context(read)?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<_>>()?;
    paths.sort();
    let mut all = String::new();
    for path in paths {
        all += fs::read_to_string(&path).with_context(read)?.trim_end();
        all.push('\n');
    }
    ensure!(all.contains("BEGIN CERTIFICATE"), "{AUTHORITIES} has no certificate");
    Ok(all)
}

/// Where a library is, as its package has it: `/lib` may be a link to `/usr/lib`, which packages of Debian 12 do
/// not know.
fn real(library: &str) -> anyhow::Result<String> {
    let owned = answer(&Line::new("dpkg-query").args(["-S", library]));
    if owned.is_ok() {
        return Ok(library.to_owned());
    }
    Ok(text(&fs::canonicalize(library)?)?.to_owned())
}

/// The files that `ldd` names.
fn libraries(said: &str) -> Vec<String> {
    let path =
        |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(str::to_owned);
    said.lines().filter_map(path).collect()
}

fn sha256(path: &Path) -> anyhow::Result<String> {
    let said = answer(&Line::new("sha256sum").arg(text(path)?))?;
    said.split_whitespace().next().map(str::to_owned).context("sha256sum says nothing")
}

/// Contents by their hash.
struct Blobs(PathBuf);

impl Blobs {
    fn new(layout: &Path) -> anyhow::Result<Self> {
        let folder = layout.join("blobs/sha256");
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        Ok(Self(folder))
    }

    /// Adds JSON; gives its descriptor.
    fn add(&self, content: &Value, media_type: &str) -> anyhow::Result<Value> {
        let file = self.0.join("new");
        fs::write(&file, content.to_string()).context("writing a blob")?;
        self.add_file(&file, media_type)
    }

    /// Moves a file here; gives its descriptor.
    fn add_file(&self, file: &Path, media_type: &str) -> anyhow::Result<Value> {
        let hash = sha256(file)?;
        let size = fs::metadata(file).context("reading the size of a blob")?.len();
        fs::rename(file, self.0.join(&hash)).context("moving a blob")?;
        Ok(json!({"mediaType": media_type, "digest": format!("sha256:{hash}"), "size": size}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_the_files_that_ldd_names() {
        let said = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        assert_eq!(
            libraries(said),
            ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]
        );
        assert!(libraries("\tstatically linked\n").is_empty());
    }

    #[test]
    fn a_blob_is_found_by_its_hash_and_size() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::new(folder.path()).unwrap();
        let added = blobs.add(&json!({}), "application/json").unwrap();
        let hash = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
        assert_eq!(added["digest"], format!("sha256:{hash}"));
        assert_eq!(added["size"], 2);
        assert_eq!(
            fs::read_to_string(folder.path().join("blobs/sha256").join(hash)).unwrap(),
            "{}"
        );
    }
}
