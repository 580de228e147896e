//! Does what `dist` made hold what docs/releasing.md promises? A table with a goal for each row.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::{DIST, Release, answer, container, licences, only, said, text};
use crate::process::{Line, Outcome, on_path};

/// Folders of the check, made anew each time.
const CHECK: &str = "target/dist-check";
const MB: f64 = 1e6;
/// The newest glibc whose symbols the binary may ask for.
const GLIBC: (u32, u32) = (2, 17);

/// With fewer crates, cargo was asked for something else.
const CRATES_LEAST: usize = 100;

/// Measures and prints everything.
pub(super) fn all(binary: &Path, release: &Release) -> anyhow::Result<Outcome> {
    if Path::new(CHECK).exists() {
        fs::remove_dir_all(CHECK).with_context(|| format!("removing {CHECK}"))?;
    }
    fs::create_dir_all(CHECK).with_context(|| format!("making {CHECK}"))?;
    println!("\n| what | found | goal | |\n| --- | --- | --- | --- |");
    let mut table = Table::default();
    sizes(binary, &mut table)?;
    symbols(binary, &mut table)?;
    bill(release, &mut table)?;
    lintian(&mut table)?;
    licence(release, &mut table)?;
    for (name, place) in places(release)? {
        match place {
            Ok(line) => {
                let found = works(&line, release)?;
                table.row(&format!("installed: {name}"), &found, "works", |s| s == "works");
            }
            Err(why) => table.row(&format!("installed: {name}"), &why, "works", |_| false),
        }
    }
    let image = only(Path::new(DIST), ".oci.tar")?;
    match container::rows(&image, release, &std::path::absolute(CHECK)?)? {
        Ok(rows) => {
            for (what, found) in rows {
                let what = format!("container: {what}");
                table.row(&what, &found, "as expected", |found| found == "as expected");
            }
        }
        Err(why) => table.row("containers", &why, "as expected", |_| false),
    }
    again(&mut table)?;
    Ok(table.outcome())
}

#[derive(Default)]
struct Table {
    missed: usize,
}

impl Table {
    fn row(&mut self, what: &str, found: &str, goal: &str, meets: impl Fn(&str) -> bool) {
        let met = meets(found);
        self.missed += usize::from(!met);
        println!("| {what} | {found} | {goal} | {} |", if met { "met" } else { "missed" });
    }

    fn outcome(&self) -> Outcome {
        if self.missed == 0 { Outcome::Passed } else { Outcome::Failed }
    }
}

fn sizes(binary: &Path, table: &mut Table) -> anyhow::Result<()> {
    let dist = Path::new(DIST);
    let files = [
        ("binary", binary.to_owned(), 15.0),
        ("wheel", only(dist, ".whl")?, 6.5),
        ("deb", only(dist, ".deb")?, 4.5),
        ("image", only(dist, ".oci.tar")?, 6.5),
    ];
    for (what, path, most) in files {
        let size =
            fs::metadata(&path).with_context(|| format!("{}", path.display()))?.len() as f64 / MB;
        table.row(what, &format!("{size:.2} MB"), &format!("≤ {most} MB"), |_| size <= most);
    }
    Ok(())
}

/// The newest version of glibc that any symbol asks for.
fn symbols(binary: &Path, table: &mut Table) -> anyhow::Result<()> {
    let said = answer(&Line::new("readelf").args(["--version-info", "--wide", text(binary)?]))?;
    let found = match newest_glibc(&said) {
        Some(Ok((major, minor))) => format!("GLIBC_{major}.{minor}"),
        Some(Err(other)) => other,
        None => bail!("the binary asks for no glibc"),
    };
    let meets = |_: &str| matches!(newest_glibc(&said), Some(Ok(newest)) if newest <= GLIBC);
    table.row("newest symbol of glibc", &found, "≤ GLIBC_2.17", meets);
    Ok(())
}

/// Of what `readelf --version-info` prints: `Name: GLIBC_2.3.2  Flags: none`. An error: what is no number, like
/// `GLIBC_ABI_DT_RELR`, which also asks for a newer one.
fn newest_glibc(said: &str) -> Option<Result<(u32, u32), String>> {
    let version = |part: &str| {
        let name = part.split_whitespace().next().unwrap_or_default();
        let mut numbers = name.split('.').map(str::parse::<u32>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
            _ => Err(format!("GLIBC_{name}")),
        }
    };
    let versions: Result<Vec<(u32, u32)>, String> =
        said.split("Name: GLIBC_").skip(1).map(version).collect();
    versions.map(|all| all.into_iter().max()).transpose()
}

/// Every crate that is built in stands in the bill of materials.
fn bill(release: &Release, table: &mut Table) -> anyhow::Result<()> {
    let bill =
        fs::read_to_string(only(Path::new(DIST), ".cdx.json")?).context("reading the bill")?;
    let bill: Value = serde_json::from_str(&bill).context("the bill of materials is not JSON")?;
    let names =
        |one: &Value| Some(format!("{} {}", one["name"].as_str()?, one["version"].as_str()?));
    let components = bill["components"].as_array().context("the bill has no components")?;
    let mut listed: BTreeSet<String> = components.iter().filter_map(names).collect();
    listed.extend(names(&bill["metadata"]["component"]));
    let mut built_in = licences::built_in(&release.target())?;
    built_in.insert(format!("{} {}", licences::STD, licences::standard_library()?));
    let missing: Vec<&String> = built_in.difference(&listed).collect();
    let others: Vec<&String> = listed.difference(&built_in).collect();
    // A bill that lists something else there is not of its format.
    let none = Vec::new();
    let dependencies = bill["dependencies"].as_array().unwrap_or(&none);
    let is_list = |one: &Value| one.get("dependsOn").is_none_or(Value::is_array);
    let found = match (missing.as_slice(), others.as_slice()) {
        _ if dependencies.is_empty() || !dependencies.iter().all(is_list) => {
            "its dependencies are no lists".to_owned()
        }
        ([], []) => format!("all {}, and no other", built_in.len()),
        (missing, others) => format!("lacks {missing:?}, has {others:?}"),
    };
    let meets = |found: &str| found.starts_with("all") && built_in.len() > CRATES_LEAST;
    table.row("crates in the bill of materials", &found, "all, and no other", meets);
    Ok(())
}

/// What Debian's own check of packages calls an error.
fn lintian(table: &mut Table) -> anyhow::Result<()> {
    if !on_path("lintian") {
        table.row("errors of lintian", "not tried: apt-get install lintian", "none", |_| false);
        return Ok(());
    }
    let deb = only(Path::new(DIST), ".deb")?;
    let line = Line::new("lintian").args(["--fail-on", "none", text(&deb)?]);
    let said = answer(&line)?;
    let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("E: ")).collect();
    let found = if errors.is_empty() { "none".to_owned() } else { errors.join("; ") };
    table.row("errors of lintian", &found, "none", |found| found == "none");
    Ok(())
}

/// What rpm says of the licence.
fn licence(release: &Release, table: &mut Table) -> anyhow::Result<()> {
    let what = "licence in the rpm";
    if !on_path("rpm") {
        table.row(what, "not tried: apt-get install rpm", "that of all crates", |_| false);
        return Ok(());
    }
    let rpm = only(Path::new(DIST), ".rpm")?;
    let said = answer(&Line::new("rpm").args(["-qp", "--queryformat", "%{LICENSE}", text(&rpm)?]))?;
    table.row(what, &said, "that of all crates", |said| said == release.licence);
    Ok(())
}

type Installed = (&'static str, Result<Line, String>);

/// Each package, installed in surroundings of its own: how the program is run there, or why it is not.
fn places(release: &Release) -> anyhow::Result<Vec<Installed>> {
    let folder = std::path::absolute(CHECK)?;
    let venv = folder.join("venv");
    said(&Line::new("python3").args(["-m", "venv", text(&venv)?]))?;
    let wheel = only(Path::new(DIST), ".whl")?;
    let pip = venv.join("bin/pip");
    let install =
        ["install", "--quiet", "--no-index", "--disable-pip-version-check", text(&wheel)?];
    said(&Line::new(text(&pip)?).args(install))?;
    // The Python package is there, and finds the program next to it.
    said(&Line::new(text(&venv.join("bin/python"))?).args(["-I", "-m", "tcptoll", "binary"]))?;
    let archive = only(Path::new(DIST), ".tar.gz")?;
    said(&Line::new("tar").args(["-C", text(&folder)?, "-xzf", text(&archive)?]))?;
    let unpacked = folder.join(release.name()).join("bin/tcptoll");
    let alone = |program: &Path| -> anyhow::Result<Line> {
        let home = format!("HOME={}", text(&folder)?);
        Ok(Line::new("env").args(["-i", "-C", text(&folder)?, &home, text(program)?]))
    };
    let image = image_root(&folder)?;
    let debian = folder.join("debian");
    Ok(vec![
        ("wheel, in a virtual environment", Ok(alone(&venv.join("bin/tcptoll"))?)),
        ("archive, unpacked", Ok(alone(&unpacked)?)),
        ("image, its root as a chroot", Ok(within(&image)?)),
        ("deb, in a debootstrapped root", with_deb(&debian)?),
        ("rpm, in a second root of that kind", with_rpm(&folder.join("rpm"), &debian)?),
    ])
}

/// The files of the image, from its archive.
fn image_root(folder: &Path) -> anyhow::Result<PathBuf> {
    let (layout, root) = (folder.join("oci"), folder.join("image"));
    fs::create_dir_all(&layout)?;
    fs::create_dir_all(&root)?;
    let archive = only(Path::new(DIST), ".oci.tar")?;
    said(&Line::new("tar").args(["-C", text(&layout)?, "-xf", text(&archive)?]))?;
    let json = |path: &Path| -> anyhow::Result<Value> {
        let read = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_slice(&read).with_context(|| format!("{}", path.display()))
    };
    let blob = |described: &Value| -> anyhow::Result<PathBuf> {
        let digest = described["digest"].as_str().context("no digest")?;
        Ok(layout.join("blobs").join(digest.replace(':', "/")))
    };
    let manifest = json(&blob(&json(&layout.join("index.json"))?["manifests"][0])?)?;
    let layer = blob(&manifest["layers"][0])?;
    said(&Line::new("tar").args(["--zstd", "-C", text(&root)?, "-xf", text(&layer)?]))?;
    Ok(root)
}

/// Debian's smallest system with the package; a copy of it stays without.
fn with_deb(root: &Path) -> anyhow::Result<Result<Line, String>> {
    if !on_path("debootstrap") {
        return Ok(Err("not tried: apt-get install debootstrap".to_owned()));
    }
    said(&Line::new("debootstrap").args(["--variant=minbase", "bookworm", text(root)?]))?;
    said(&Line::new("cp").args(["-a", text(root)?, text(&bare(root))?]))?;
    let deb = only(Path::new(DIST), ".deb")?;
    fs::copy(&deb, root.join("tcptoll.deb")).context("copying the deb")?;
    if let Err(why) = restricted(root) {
        return Ok(Err(format!("{why:#}")));
    }
    let found = dpkg(root, &["-i", "/tcptoll.deb"]);
    Ok(found.map_err(|why| format!("{why:#}")).and(Ok(within(root)?)))
}

/// Where `with_deb` leaves the system without the package.
fn bare(root: &Path) -> PathBuf {
    root.with_extension("bare")
}

/// The rpm in a Debian system, whose libraries it needs: rpm's own database does not know of them. Its scripts run.
fn with_rpm(root: &Path, debian: &Path) -> anyhow::Result<Result<Line, String>> {
    for program in ["debootstrap", "rpm"] {
        if !on_path(program) {
            return Ok(Err(format!("not tried: apt-get install {program}")));
        }
    }
    fs::rename(bare(debian), root)?;
    let package = only(Path::new(DIST), ".rpm")?;
    let install = ["--force-debian", "--nodeps", "--install", "--root", text(root)?];
    said(&Line::new("rpm").args(install).arg(text(&package)?))?;
    Ok(Ok(within(root)?))
}

fn dpkg(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    said(&Line::new("chroot").args([text(root)?, "dpkg"]).args(words.to_vec()))
}

/// Where AppArmor restricts user namespaces: what is installed, upgraded and removed there.
fn restricted(root: &Path) -> anyhow::Result<()> {
    // The machine's `/proc` is not mounted here.
    let setting = root.join("proc/sys/kernel/apparmor_restrict_unprivileged_userns");
    fs::create_dir_all(setting.parent().context("a file is in a folder")?)?;
    fs::write(&setting, "1\n").context("a setting for the installation to see")?;
    let folder = root.join("etc/apparmor.d");
    let profile = folder.join("tcptoll");
    // As in a container of such a machine.
    ensure!(!folder.exists(), "the smallest Debian has AppArmor");
    dpkg(root, &["-i", "/tcptoll.deb"]).context("without AppArmor's folder")?;
    ensure!(!folder.exists(), "the installation made {}", folder.display());
    fs::create_dir(&folder)?;
    for step in ["upgrade", "again"] {
        dpkg(root, &["-i", "/tcptoll.deb"]).context(step)?;
        ensure!(profile.exists(), "{step}: no profile was written");
    }
    dpkg(root, &["-r", "tcptoll"])?;
    ensure!(!profile.exists(), "the profile outlived the package");
    dpkg(root, &["-i", "/tcptoll.deb"])?;
    fs::write(&profile, "changed\n")?;
    dpkg(root, &["-r", "tcptoll"])?;
    ensure!(profile.exists(), "a profile that was changed was removed");
    fs::remove_dir_all(root.join("proc/sys"))?;
    fs::remove_dir_all(&folder).context("removing AppArmor's folder")
}

/// Runs the program of a root, with the machine's `/proc` and `/dev`. In a chroot the kernel makes no user
/// namespaces, so the root is made the one of a mount namespace, as container engines do.
fn within(root: &Path) -> anyhow::Result<Line> {
    // The image has no env of its own.
    let env = if root.join("usr/bin/env").exists() { "/usr/bin/env -i HOME=/root " } else { "" };
    let script = format!(
        "mount --bind \"$0\" \"$0\" && cd \"$0\" && mkdir -p .old && mount -t proc proc proc && \
         mount --rbind /dev dev && mount --rbind /sys sys && pivot_root . .old && cd / && \
         exec {env}/usr/bin/tcptoll \"$@\""
    );
    let line = Line::new("unshare").args(["--mount", "sh", "-c", &script, text(root)?]);
    Ok(line.env("HOME", "/root"))
}

/// Version, a connection in the lab, and the tour.
fn works(line: &Line, release: &Release) -> anyhow::Result<String> {
    let version: &[&str] = &["--version", "--verbose"];
    for words in [version, &["connect", "--quiet", "--count", "200"], &["tour", "--quiet"]] {
        let output = line.clone().args(words.to_vec()).command().output();
        let output = output.with_context(|| format!("running {line}"))?;
        // 1: measured, and on a busy machine an answer of the tour is invalid.
        let ran =
            output.status.success() || (words[0] == "tour" && output.status.code() == Some(1));
        if !ran {
            let error = String::from_utf8_lossy(&output.stderr);
            let last = error.lines().last().unwrap_or_default();
            return Ok(format!("{} ended with {}: {last}", words[0], output.status));
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let is_ours = said.starts_with(&format!("tcptoll {}\n", release.version))
            && said.contains(&release.commit);
        if words == version && !is_ours {
            return Ok(format!("it is another version or commit: {}", said.replace('\n', "; ")));
        }
    }
    Ok("works".to_owned())
}

/// Builds the same commit in another folder, for a user with other habits.
fn again(table: &mut Table) -> anyhow::Result<()> {
    let folder = std::path::absolute(CHECK)?.join("elsewhere");
    let other = |line: &str| {
        let line = Line::new("sh").args(["-c", &format!("umask 077 && {line}")]);
        line.env("TZ", "Asia/Kolkata").env("LC_ALL", "C").env("XZ_DEFAULTS", "-T2 -1")
    };
    said(&other(&format!("git clone --quiet . {}", text(&folder)?)))?;
    if !answer(&Line::new("git").args(["status", "--porcelain"]))?.is_empty() {
        bail!("there are changes that are not committed, so another folder has other sources");
    }
    said(&other(&format!("cd {} && cargo xtask dist", text(&folder)?)))?;
    let sums = |folder: &Path| -> anyhow::Result<String> {
        let path: PathBuf = folder.join(DIST).join("SHA256SUMS");
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    };
    let (mine, other) = (sums(Path::new("."))?, sums(&folder)?);
    let (mine, other): (BTreeSet<_>, BTreeSet<_>) =
        (mine.lines().collect(), other.lines().collect());
    let differ: Vec<&str> = mine.symmetric_difference(&other).copied().collect();
    let found = match differ.as_slice() {
        [] => format!("all {} files", mine.len()),
        some => format!("other bits in {}", some.join(", ")),
    };
    table.row("same bits in another folder", &found, "all", |found| found.starts_with("all"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_glibc_is_by_number_and_not_by_letter() {
        let said = "  0x0030:   Name: GLIBC_2.2.5  Flags: none  Version: 5\n  0x0040:   Name: GLIBC_2.17  Flags: none\n\
                    0x0050:   Name: GLIBC_2.3.4  Flags: none  Version: 2\n";
        assert_eq!(newest_glibc(said), Some(Ok((2, 17))));
        assert_eq!(newest_glibc("nothing"), None);
        let newer = format!("{said} Name: GLIBC_ABI_DT_RELR  Flags: none");
        assert_eq!(newest_glibc(&newer), Some(Err("GLIBC_ABI_DT_RELR".to_owned())));
    }
}
