//! The files as they are installed below `/usr`, and the archive of them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{DIST, Release, STAGE, answer, documents, executable, licences, said, text};
use crate::process::Line;

/// Completion scripts, each where its shell looks.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/tcptoll"),
    ("zsh", "usr/share/zsh/vendor-completions/_tcptoll"),
    ("fish", "usr/share/fish/vendor_completions.d/tcptoll.fish"),
];
/// Documents, by their place in the checkout.
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];
/// Those that every copy of the binary comes with.
pub(super) const NOTICES: [&str; 3] = ["LICENSE-MIT", "LICENSE-APACHE", licences::FILE];
const COPYRIGHT: &str = "Copyright: the tcptoll developers.\n\
                         tcptoll is under MIT or Apache-2.0, as you choose: LICENSE-MIT and LICENSE-APACHE in this \
                         folder. On Debian the latter is /usr/share/common-licenses/Apache-2.0, too.\n\
                         The crates compiled into it: THIRD-PARTY-LICENSES.txt.\n";
/// Changes as Debian wants them.
pub(super) const CHANGES: &str = "target/dist-stage/changelog.Debian.gz";
const MAINTAINER: &str = "The tcptoll developers <tcptoll@users.noreply.github.com>";
const UNIT: &str = "docs/watch/tcptoll-watch.service";

/// A folder with what a package installs.
pub(super) struct Tree(PathBuf);

impl Tree {
    /// Puts everything in its place.
    pub(super) fn stage(binary: &Path, release: &Release) -> anyhow::Result<Self> {
        let tree = Self(Path::new(STAGE).join("root"));
        let program = tree.file("usr/bin/tcptoll")?;
        fs::copy(binary, &program).context("copying the binary")?;
        executable(&program)?;
        let program = text(&program)?;
        let pages = tree.file("usr/share/man/man1/tcptoll.1")?;
        let pages = pages.parent().unwrap_or(&pages);
        answer(&Line::new(program).args(["man", "--dir", text(pages)?]))?;
        for (shell, place) in COMPLETIONS {
            let script = answer(&Line::new(program).args(["completions", shell]))?;
            fs::write(tree.file(place)?, script + "\n")
                .with_context(|| format!("writing {place}"))?;
        }
        for document in DOCUMENTS {
            let to = tree.file(&format!("usr/share/doc/tcptoll/{document}"))?;
            let text =
                fs::read_to_string(document).with_context(|| format!("reading {document}"))?;
            fs::write(to, documents::with_addresses(&text, release))
                .with_context(|| format!("copying {document}"))?;
        }
        let notices = tree.file(&format!("usr/share/doc/tcptoll/{}", licences::FILE))?;
        fs::copy(licences::WRITTEN, notices).context("copying the licences of the crates")?;
        fs::write(tree.file("usr/share/doc/tcptoll/copyright")?, COPYRIGHT)?;
        // The program prints the profile for the place where it is.
        let profile = answer(&Line::new(program).args(["lab", "--apparmor-profile"]))?;
        let here = fs::canonicalize(program)?;
        let profile = profile.replace(text(&here)?, "/usr/bin/tcptoll") + "\n";
        fs::write(tree.file("usr/share/tcptoll/apparmor/tcptoll")?, profile)?;
        let unit = fs::read_to_string(UNIT).with_context(|| format!("reading {UNIT}"))?;
        let unit = unit.replace("/usr/local/bin/", "/usr/bin/");
        fs::write(tree.file("usr/lib/systemd/system/tcptoll-watch.service")?, unit)?;
        said(&Line::new("sh").args(["-c", "gzip -9n \"$1\"/*.1", "sh", text(pages)?]))?;
        let date = ["-R", "-u", "-d", &format!("@{}", release.epoch)].map(str::to_owned);
        let date = answer(&Line::new("date").args(date))?;
        let changes = format!(
            "tcptoll ({}-1) stable; urgency=medium\n\n  * CHANGELOG.md in this folder has the changes.\n\n \
             -- {MAINTAINER}  {date}\n",
            release.version
        );
        let debian = CHANGES.trim_end_matches(".gz");
        fs::write(debian, changes).context("writing Debian's changelog")?;
        said(&Line::new("gzip").args(["-9n", debian]))?;
        super::readable(Path::new(CHANGES))?;
        super::readable(&tree.0)?;
        // Packers keep the times of files.
        let when = format!("@{}", release.epoch);
        let touch = ["-exec", "touch", "-h", "-d", &when, "{}", "+"];
        said(&Line::new("find").arg(STAGE).args(touch))?;
        Ok(tree)
    }

    pub(super) fn root(&self) -> &Path {
        &self.0
    }

    /// The archive for any Linux: one folder, to be put wherever the user likes.
    pub(super) fn archive(&self, release: &Release) -> anyhow::Result<()> {
        let name = release.name();
        let rename = format!("--transform=s,^usr,{name},");
        let archive = Path::new(DIST).join(format!("{name}.tar"));
        said(&release.tar(self.root(), &archive)?.arg(rename).arg("usr"))?;
        said(&Line::new("gzip").args(["-9n", text(&archive)?]))
    }

    /// A file of the tree, with the folders above it.
    fn file(&self, place: &str) -> anyhow::Result<PathBuf> {
        let path = self.0.join(place);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        }
        Ok(path)
    }
}
