//! What users install, all from one binary: wheel, archive, deb, rpm, container image, and what they consist of.
//!
//! maturin builds the binary with zig as its linker, so that it asks for glibc 2.17 and no more; the wheel has it,
//! and every other package takes it from there. Nothing depends on the folder, the day or the machine: the same
//! sources give the same bits. docs/releasing.md tells how that is checked.

mod check;
mod container;
mod documents;
mod image;
mod licences;
mod tree;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use crate::process::{Line, Outcome};
use crate::workspace;
use tree::Tree;

/// Where everything goes.
const DIST: &str = "dist";
/// Folders of one run, made anew each time.
const STAGE: &str = "target/dist-stage";
const DEB_PARTS: &str = "target/dist-stage/deb";
/// Programs of `packaging/tools.txt`.
const TOOLS: &str = "target/dist-tools";
const PACKAGES: &str = "packaging/nfpm.yaml";
const TOOLS_LIST: &str = "packaging/tools.txt";
const REPOSITORY: &str = "https://github.com/tcptoll/tcptoll";
const LINKER_SCRIPT: &str = "packaging/no-unwind-tables.ld";

/// `cargo xtask dist [--check]`.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<Outcome> {
    let checks = match arguments {
        [] => false,
        [only] if only == "--check" => true,
        _ => bail!("dist accepts only --check"),
    };
    let release = Release::of_checkout()?;
    for folder in [DIST, STAGE] {
        if Path::new(folder).exists() {
            fs::remove_dir_all(folder).with_context(|| format!("removing {folder}"))?;
        }
        fs::create_dir_all(folder).with_context(|| format!("making {folder}"))?;
    }
    let tools = tools()?;
    licences::write(&release.target())?;
    let binary = wheel(&release, &tools)?;
    let tree = Tree::stage(&binary, &release)?;
    tree.archive(&release)?;
    packages(&release, &tools, &tree)?;
    image::write(&binary, &tree, &release)?;
    sums()?;
    said(&Line::new("ls").args(["-l", DIST]))?;
    if checks { check::all(&binary, &release) } else { Ok(Outcome::Passed) }
}

/// What the packages are called and when they were made.
struct Release {
    version: String,
    commit: String,
    /// Seconds since 1970: the time of the commit, which is every file's.
    epoch: String,
    /// The same as RFC 3339.
    time: String,
    architecture: Architecture,
    /// SPDX expression of the binary.
    licence: String,
}

/// One architecture in the words of everybody.
#[derive(Clone, Copy)]
struct Architecture {
    rust: &'static str,
    debian: &'static str,
    /// What xz applies before it compresses machine code, and what every xz since 2009 reads.
    filter: &'static [&'static str],
}

const ARCHITECTURES: [Architecture; 2] = [
    Architecture { rust: "x86_64", debian: "amd64", filter: &["--x86"] },
    Architecture { rust: "aarch64", debian: "arm64", filter: &[] },
];

impl Architecture {
    fn target(self) -> String {
        format!("{}-unknown-linux-gnu", self.rust)
    }
}

impl Release {
    fn of_checkout() -> anyhow::Result<Self> {
        let rust = std::env::consts::ARCH;
        let architecture = ARCHITECTURES.into_iter().find(|one| one.rust == rust);
        let metadata = workspace::packages()?;
        let program = metadata.packages.iter().find(|package| package.name.as_str() == "tcptoll");
        let git = |arguments: &[&str]| answer(&Line::new("git").args(arguments.to_vec()));
        let mut commit = git(&["rev-parse", "HEAD"])?;
        if !git(&["status", "--porcelain"])?.is_empty() {
            commit += ", changed";
        }
        let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(epoch) => epoch,
            Err(_) => git(&["log", "-1", "--format=%ct"])?,
        };
        let at = format!("@{epoch}");
        let architecture =
            architecture.with_context(|| format!("there are no packages for {rust}"))?;
        Ok(Self {
            version: program.context("the workspace has no package tcptoll")?.version.to_string(),
            commit,
            time: answer(&Line::new("date").args(["-u", "-d", &at, "+%Y-%m-%dT%H:%M:%SZ"]))?,
            epoch,
            licence: licences::expression(&architecture.target())?,
            architecture,
        })
    }

    fn target(&self) -> String {
        self.architecture.target()
    }

    /// `tcptoll-0.1.0-x86_64-linux`.
    fn name(&self) -> String {
        format!("tcptoll-{}-{}-linux", self.version, self.architecture.rust)
    }

    /// tar that knows neither the order of a folder nor who ran it and when.
    fn tar(&self, folder: &Path, to: &Path) -> anyhow::Result<Line> {
        let mtime = format!("--mtime=@{}", self.epoch);
        Ok(Line::new("env")
            .args(["-u", "TAR_OPTIONS", "tar"])
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"])
            .args([mtime.as_str(), "-C", text(folder)?, "-cf", text(to)?]))
    }
}

/// Installs the tools where they are not there yet; gives the folder of their programs.
fn tools() -> anyhow::Result<PathBuf> {
    let list = fs::read_to_string(TOOLS_LIST).with_context(|| format!("reading {TOOLS_LIST}"))?;
    let stamp = Path::new(TOOLS).join("installed.txt");
    let programs = std::path::absolute(Path::new(TOOLS).join("bin"))?;
    if fs::read_to_string(&stamp).ok().as_ref() != Some(&list) {
        said(&Line::new("python3").args(["-m", "venv", "--clear", TOOLS]))?;
        let pip = programs.join("pip");
        said(&Line::new(text(&pip)?).args(["install", "--quiet", "-r", TOOLS_LIST]))?;
        fs::write(&stamp, list).with_context(|| format!("writing {}", stamp.display()))?;
    }
    Ok(programs)
}

/// Builds the wheel with its bill of materials; gives the binary in it.
fn wheel(release: &Release, tools: &Path) -> anyhow::Result<PathBuf> {
    let folder = std::env::current_dir()?;
    let cargo = std::env::var("CARGO_HOME")
        .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")));
    let cargo = cargo.context("neither CARGO_HOME nor HOME is set")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let from = text(&folder)?;
    ensure!(
        !format!("{from}{cargo}").contains([' ', ',', '=']),
        "the linker takes no folder whose name has a blank, a comma or an equals sign: {from}, {cargo}"
    );
    // Panics and C assertions name files: as they are called everywhere.
    let mut flags = format!(
        "--remap-path-prefix={cargo}=/cargo --remap-path-prefix={from}=/tcptoll \
         -Clink-arg=-Wl,-T,{from}/{LINKER_SCRIPT}"
    );
    // Sources of crates are in a folder that is named after the registry they come from.
    let registries = fs::read_dir(Path::new(&cargo).join("registry/src"));
    for registry in registries.into_iter().flatten() {
        let registry = registry.context("reading the folder of crates")?.path();
        flags += &format!(" --remap-path-prefix={}=/cargo/crates", text(&registry)?);
    }
    let c_flags = format!("-ffile-prefix-map={cargo}=/cargo -ffile-prefix-map={from}=/tcptoll -g0");
    let build = Line::new("env")
        .args([
            "-C",
            "packaging",
            "-u",
            "CARGO_ENCODED_RUSTFLAGS",
            "maturin",
            "build",
            "--zig",
            "--compatibility",
            "manylinux2014",
        ])
        .args(["--target", &release.target(), "--out", "../dist"])
        .env("PATH", &format!("{}:{path}", text(tools)?))
        .env("CARGO_TARGET_DIR", &format!("{from}/target"))
        .env("RUSTFLAGS", &flags)
        .env("CFLAGS", &c_flags)
        .env("SOURCE_DATE_EPOCH", &release.epoch)
        .env("TCPTOLL_COMMIT", &release.commit)
        .env("TCPTOLL_PROFILE", "dist");
    said(&build)?;
    let wheel = only(Path::new(DIST), ".whl")?;
    let unpacked = Path::new(STAGE).join("wheel");
    let python = tools.join("python");
    let unpack = ["-m", "zipfile", "-e", text(&wheel)?, text(&unpacked)?];
    said(&Line::new(text(&python)?).args(unpack))?;
    let scripts = unpacked.join(format!("tcptoll-{}.data/scripts/tcptoll", release.version));
    let bill =
        only(&unpacked.join(format!("tcptoll-{}.dist-info/sboms", release.version)), ".json")?;
    // The bill names our own crates by their folder.
    let text_of_bill =
        fs::read_to_string(&bill).with_context(|| format!("reading {}", bill.display()))?;
    let everywhere = text_of_bill.replace(&format!("file://{from}/"), "file:///tcptoll/");
    let everywhere = of_built_in(
        &everywhere,
        &licences::built_in(&release.target())?,
        &licences::standard_library()?,
    )?;
    let notices = unpacked.join(format!("tcptoll-{}.dist-info/licenses", release.version));
    fs::copy(licences::WRITTEN, notices.join(licences::FILE)).context("copying the licences")?;
    let metadata = unpacked.join(format!("tcptoll-{}.dist-info/METADATA", release.version));
    let told = fs::read_to_string(&metadata).context("reading the wheel's metadata")?;
    let told = told.replacen(
        "License-File: LICENSE-MIT\n",
        &format!("License-File: LICENSE-MIT\nLicense-File: {}\n", licences::FILE),
        1,
    );
    ensure!(told.contains(licences::FILE), "the wheel's metadata names no LICENSE-MIT");
    let told = told.replacen(
        "License-Expression: MIT OR Apache-2.0\n",
        &format!("License-Expression: {}\n", release.licence),
        1,
    );
    let told = documents::with_addresses(&told, release);
    fs::write(&metadata, told).context("writing the wheel's metadata")?;
    fs::write(&bill, &everywhere).with_context(|| format!("writing {}", bill.display()))?;
    fs::write(Path::new(DIST).join(format!("{}.cdx.json", release.name())), everywhere)
        .context("writing the bill of materials")?;
    readable(&unpacked)?;
    executable(&scripts)?;
    fs::remove_file(&wheel).with_context(|| format!("removing {}", wheel.display()))?;
    let pack = tools.join("wheel");
    let pack = Line::new(text(&pack)?).args(["pack", text(&unpacked)?, "--dest-dir", DIST]);
    said(&pack.env("SOURCE_DATE_EPOCH", &release.epoch))?;
    Ok(scripts)
}

/// A bill of materials without the components that only tests and builds need, and with Rust's standard library.
fn of_built_in(
    bill: &str,
    built_in: &BTreeSet<String>,
    standard_library: &str,
) -> anyhow::Result<String> {
    let mut bill: Value = serde_json::from_str(bill).context("the bill is not JSON")?;
    let is_in = |one: &Value| {
        let (Some(name), Some(version)) = (one["name"].as_str(), one["version"].as_str()) else {
            return false;
        };
        built_in.contains(&format!("{name} {version}"))
    };
    let own = bill["metadata"]["component"]["bom-ref"].as_str().map(str::to_owned);
    let components = bill["components"].as_array_mut().context("the bill has no components")?;
    components.retain(is_in);
    let mut kept: BTreeSet<String> =
        components.iter().filter_map(|one| one["bom-ref"].as_str().map(str::to_owned)).collect();
    kept.extend(own);
    components.push(json!({
        "type": "library",
        "bom-ref": "rust-standard-library",
        "name": licences::STD,
        "version": standard_library,
        "description": "Rust's standard library, with the crates that it is made of",
        "licenses": [{"expression": "MIT OR Apache-2.0"}],
    }));
    if let Some(dependencies) = bill["dependencies"].as_array_mut() {
        let known = |one: &Value| one.as_str().is_some_and(|one| kept.contains(one));
        dependencies.retain(|one| known(&one["ref"]));
        for one in dependencies {
            if let Some(on) = one.get_mut("dependsOn").and_then(Value::as_array_mut) {
                on.retain(known);
            }
        }
    }
    Ok(format!("{bill:#}\n"))
}

/// deb and rpm.
fn packages(release: &Release, tools: &Path, tree: &Tree) -> anyhow::Result<()> {
    // nfpm fills in variables in some fields, and leaves that of the licence as it is.
    let config = Path::new(STAGE).join("nfpm.yaml");
    let written = fs::read_to_string(PACKAGES).with_context(|| format!("reading {PACKAGES}"))?;
    let written = written.replace("${LICENCE}", &release.licence);
    fs::write(&config, written).with_context(|| format!("writing {}", config.display()))?;
    for packager in ["deb", "rpm"] {
        let nfpm = tools.join("nfpm");
        let line = Line::new(text(&nfpm)?)
            .args(["package", "--config", text(&config)?, "--target", DIST])
            .args(["--packager", packager])
            .env("ARCH", release.architecture.debian)
            .env("VERSION", &release.version)
            .env("SOURCE_DATE_EPOCH", &release.epoch)
            .env("STAGE", text(tree.root())?)
            .env("CHANGES", tree::CHANGES);
        said(&line)?;
    }
    compressed(&only(Path::new(DIST), ".deb")?, release)
}

/// Compresses what a deb installs, which nfpm left as it is: its own xz makes it a fifth larger.
fn compressed(deb: &Path, release: &Release) -> anyhow::Result<()> {
    fs::create_dir_all(DEB_PARTS).with_context(|| format!("making {DEB_PARTS}"))?;
    let deb = std::path::absolute(deb)?;
    // What a user set for xz would change the bits.
    let within = |program: &str| {
        Line::new("env").args(["-C", DEB_PARTS, "-u", "XZ_DEFAULTS", "-u", "XZ_OPT", program])
    };
    said(&within("ar").args(["x", text(&deb)?]))?;
    let filter = release.architecture.filter.to_vec();
    said(&within("xz").args(filter).args(["--lzma2=preset=9e,lc=4", "-T1", "data.tar"]))?;
    fs::remove_file(&deb).with_context(|| format!("removing {}", deb.display()))?;
    // The order is the format's.
    let members = ["debian-binary", "control.tar.gz", "data.tar.xz"];
    said(&within("ar").args(["rcD", text(&deb)?]).args(members))
}

/// SHA-256 of everything, as `sha256sum --check` reads it.
fn sums() -> anyhow::Result<()> {
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(DIST).context("reading dist")? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    let line = Line::new("env").args(["-C", DIST, "sha256sum"]).args(names);
    fs::write(Path::new(DIST).join("SHA256SUMS"), answer(&line)? + "\n").context("writing sums")
}

/// The only file of a folder with this ending.
fn only(folder: &Path, ending: &str) -> anyhow::Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    let mut found = paths.into_iter().filter(|path| path.to_string_lossy().ends_with(ending));
    match (found.next(), found.next()) {
        (Some(path), None) => Ok(path),
        _ => bail!("{} does not have exactly one file that ends in {ending}", folder.display()),
    }
}

/// Modes that do not depend on who builds: everybody may read, the owner write, and programs stay programs.
fn readable(path: &Path) -> anyhow::Result<()> {
    said(&Line::new("chmod").args(["-R", "u=rwX,go=rX,a-st", text(path)?]))
}

fn executable(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("making {} executable", path.display()))
}

/// Runs a command with its output shown.
fn said(line: &Line) -> anyhow::Result<()> {
    ensure!(line.run()? == Outcome::Passed, "{line} failed");
    Ok(())
}

/// What a command prints, without the last line feed.
fn answer(line: &Line) -> anyhow::Result<String> {
    let output = line.command().output().with_context(|| format!("running {line}"))?;
    ensure!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
    let text = String::from_utf8(output.stdout).with_context(|| format!("reading {line}"))?;
    Ok(text.trim_end_matches('\n').to_owned())
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bill_keeps_what_is_built_in_and_what_depends_on_it() {
        let bill = r#"{"metadata":{"component":{"bom-ref":"own"}},
            "components":[{"name":"a","version":"1","bom-ref":"a1"},{"name":"a","version":"2","bom-ref":"a2"}],
            "dependencies":[{"ref":"own","dependsOn":["a1","a2"]},{"ref":"a2","dependsOn":["a1"]},{"ref":"a1"}]}"#;
        let bill = of_built_in(bill, &["a 1".to_owned()].into(), "1.90.0").unwrap();
        let bill: Value = serde_json::from_str(&bill).unwrap();
        let names: Vec<&str> = bill["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["a", "std"]);
        // `"dependsOn": null` would be no CycloneDX.
        assert_eq!(
            bill["dependencies"],
            json!([{"ref": "own", "dependsOn": ["a1"]}, {"ref": "a1"}])
        );
    }
}
