//! Who names an experiment: nothing but its own folders and the tables. Then an experiment can be
//! added, and taken away, without a change of what all have in common.
//!
//! To name one is to use a path through `experiments::<name>`, or to hold its name as a text. Looked
//! at is what ships: `src` of every crate in `crates/`, without tests.

use std::collections::{BTreeMap, BTreeSet};

use super::Verdict;
use super::source::Name;
use super::tree::{File, Tree};

/// Texts that equal an experiment's name and mean something else: the end of the file's path, or a
/// folder with a `/` at its end; the text; what it means there.
const OTHER_MEANINGS: &[(&str, &str, &str)] = &[
    ("crates/kernel/src/", "connect", "the system call, in errors"),
    ("/writer.rs", "connect", "the system call, in errors"),
    ("load/http/tally.rs", "connect", "a distribution of `http`: time to connect"),
    ("http/observation.rs", "connect", "the same distribution"),
    ("experiments/columns.rs", "connect", "a heading over the same distribution"),
    ("http/options.rs", "keepalive", "an option of `http`: does the server keep connections?"),
    ("doctor/config/apache.rs", "http", "a scheme or protocol in a server's configuration"),
    ("doctor/config/apache.rs", "keepalive", "a parameter of ProxyPass"),
    ("doctor/config/haproxy.rs", "connect", "a directive: the time-out of connecting"),
    ("doctor/config/haproxy.rs", "http", "a mode"),
    ("doctor/config/nginx.rs", "http", "a block of nginx.conf"),
    ("doctor/config/nginx.rs", "keepalive", "a directive of an upstream"),
    ("doctor/config/nginx.rs", "stream", "a block of nginx.conf"),
    ("http/url.rs", "http", "the scheme of a URL"),
    ("crates/model/src/page/", "http", "the scheme of a URL"),
    ("crates/lab/src/load/page/", "http", "the scheme of a URL"),
    ("page/options.rs", "keepalive", "an option of `page`: does the server keep connections?"),
    (
        "report/src/experiments/page/mod.rs",
        "keepalive",
        "an option of `page`: does the server keep connections?",
    ),
    ("report/src/experiments/page/mod.rs", "connect", "a phase of a request"),
    (
        "visitors/options.rs",
        "keepalive",
        "an option of `visitors`: does the server keep connections?",
    ),
    ("visitors/mod.rs", "page", "a unit: what visitors load"),
    ("tune/setting.rs", "keepalive", "the same option, of a setting that is searched"),
    ("tcptoll/src/tune_studies.rs", "keepalive", "the same option, in an arm of a study"),
    ("bench/content.rs", "http", "the scheme of a URL"),
    (
        "bench/reuse_limits.rs",
        "keepalive",
        "an option of several: does the server keep connections?",
    ),
    ("keepalive/mod.rs", "messages", "a unit: what the writing connection sends"),
    ("columns/took.rs", "messages", "the same unit, in a heading"),
    ("keepalive/settings/mod.rs", "messages", "the same unit, in an error"),
];

/// Files that name an experiment although they are none of its own: how many there are still, by
/// crate. The table only shrinks: a number that is too large is a fault as well.
const KNOWN: &[(&str, usize)] = &[];
/// Files of one experiment that name another, by crate; as above.
const KNOWN_BETWEEN: &[(&str, usize)] = &[];

const FILE: &str = "xtask/src/layers/experiments.rs";
/// The folder whose folders are the experiments.
const FOLDER: &str = "crates/model/src/experiments";
const MODULE: &str = "experiments";

/// One file and what it names, each experiment once.
#[derive(Debug, PartialEq, Eq)]
struct Mention {
    krate: String,
    file: String,
    /// Whose file it is.
    owner: Option<String>,
    /// Line, experiment, and how it is named.
    named: Vec<(usize, String, String)>,
}

/// The names of the experiments, as on the command line.
pub(super) fn names(tree: &Tree) -> BTreeSet<String> {
    let folder = format!("{FOLDER}/");
    let folders = tree.files.iter().filter_map(|file| file.path.strip_prefix(&folder));
    folders
        .filter_map(|inside| inside.split_once('/'))
        .map(|(name, _)| name.replace('_', "-"))
        .collect()
}

/// Where in `src/experiments` a file is: the name of the folder or file there.
fn inside(path: &str) -> Option<&str> {
    let (_, inside) = path.split_once("/src/experiments/")?;
    let first = inside.split('/').next()?;
    Some(first.strip_suffix(".rs").unwrap_or(first))
}

/// The experiment that a module of `experiments` is.
fn owner<'a>(module: &str, names: &'a BTreeSet<String>) -> Option<&'a String> {
    names.iter().find(|name| name.replace('-', "_") == module)
}

fn is_table(path: &str) -> bool {
    path.ends_with("/src/experiments/mod.rs") || path.ends_with("/src/experiments.rs")
}

/// What one file names, others' experiments only.
fn mention(
    tree: &Tree,
    file: &File,
    names: &BTreeSet<String>,
    used: &mut [bool],
) -> Option<Mention> {
    let place = file.place.as_ref()?;
    if file.test || is_table(&file.path) || !file.path.starts_with("crates/") {
        return None;
    }
    let owner_of_file = inside(&file.path).and_then(|module| owner(module, names));
    let mut named: BTreeMap<&String, (usize, String)> = BTreeMap::new();
    let mut add = |experiment, line, how: String| {
        if Some(experiment) != owner_of_file {
            named.entry(experiment).or_insert((line, how));
        }
    };
    let through = |name: &&Name| !name.place.test;
    for name in file.source.names.iter().filter(through) {
        let Some(path) = tree.absolute(file, name) else { continue };
        let pairs = path.words.windows(2).filter(|pair| pair[0] == MODULE);
        for experiment in pairs.filter_map(|pair| owner(&pair[1], names)) {
            add(experiment, name.place.line, format!("{}::{}", path.krate, path.words.join("::")));
        }
    }
    for text in file.source.texts.iter().filter(|text| !text.place.test) {
        let Some(experiment) = names.get(&text.value) else { continue };
        let exempt = OTHER_MEANINGS
            .iter()
            .position(|(end, value, _)| exempts(end, &file.path) && *value == text.value);
        match exempt {
            Some(at) => used[at] = true,
            None => add(experiment, text.place.line, format!("{:?}", text.value)),
        }
    }
    let named: Vec<_> =
        named.into_iter().map(|(name, (line, how))| (line, name.clone(), how)).collect();
    (!named.is_empty()).then(|| Mention {
        krate: place.krate.clone(),
        file: file.path.clone(),
        owner: owner_of_file.cloned(),
        named,
    })
}

/// `crates/kernel/src/` is a folder with all below it; `http/url.rs` is the end of a path.
fn exempts(pattern: &str, path: &str) -> bool {
    if pattern.ends_with('/') { path.starts_with(pattern) } else { path.ends_with(pattern) }
}

/// `cargo xtask layers`, these rules.
pub(super) fn check(tree: &Tree) -> [Verdict; 2] {
    let names = names(tree);
    let mut used = vec![false; OTHER_MEANINGS.len()];
    let mentions: Vec<Mention> =
        tree.files.iter().filter_map(|file| mention(tree, file, &names, &mut used)).collect();
    let (between, common): (Vec<Mention>, Vec<Mention>) =
        mentions.into_iter().partition(|mention| mention.owner.is_some());
    let mut of_common = judge("files that name an experiment", &common, KNOWN);
    if names.is_empty() {
        of_common.faults.push(format!("no experiment has a folder in {FOLDER}"));
    }
    let unused = OTHER_MEANINGS.iter().zip(used).filter(|(_, used)| !used);
    of_common.faults.extend(unused.map(|((file, text, _), _)| {
        format!("{FILE}: OTHER_MEANINGS: {file}: {text:?} is not there any more: remove the line")
    }));
    let of_between = judge("files of one experiment that name another", &between, KNOWN_BETWEEN);
    [of_common, of_between]
}

fn judge(what: &str, mentions: &[Mention], known: &[(&str, usize)]) -> Verdict {
    let mut by_crate: BTreeMap<&str, Vec<&Mention>> = BTreeMap::new();
    for mention in mentions {
        by_crate.entry(&mention.krate).or_default().push(mention);
    }
    let mut faults = Vec::new();
    let mut excused = Vec::new();
    for (krate, found) in &by_crate {
        let limit = known.iter().find(|(known, _)| known == krate).map_or(0, |(_, limit)| *limit);
        let texts = found.iter().map(|mention| text_of(mention));
        if found.len() > limit {
            let head = format!("{krate}: {} {what}, limit {limit} ({FILE}):", found.len());
            let lines: Vec<String> = texts.map(|text| format!("\n  {text}")).collect();
            faults.push(head + &lines.concat());
        } else {
            excused.extend(texts);
        }
    }
    for (krate, limit) in known {
        let found = by_crate.get(krate).map_or(0, Vec::len);
        if found < *limit {
            faults.push(format!(
                "{FILE}: {krate}: only {found} {what} are left: lower its limit to {found}"
            ));
        }
    }
    let summary = format!("{what}: {}, of them {} known", mentions.len(), excused.len());
    Verdict { summary, faults, known: excused }
}

fn text_of(mention: &Mention) -> String {
    let named: Vec<String> = mention
        .named
        .iter()
        .map(|(line, name, how)| format!("{name} in line {line} ({how})"))
        .collect();
    format!("{}: names {}", mention.file, named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::tree::tests::tree;

    const FOLDERS: [(&str, &str); 5] = [
        ("crates/model/src/experiments/spec.rs", ""),
        ("crates/model/src/experiments/http/mod.rs", ""),
        ("crates/model/src/experiments/worker_pool/mod.rs", ""),
        ("crates/engine/src/experiments/mod.rs", "mod http; mod worker_pool;"),
        ("crates/engine/src/experiments/http/mod.rs", ""),
    ];

    /// What is said of the last file, and its owner.
    fn named(files: &[(&str, &str)]) -> Option<(Option<String>, String)> {
        let tree = tree(&[FOLDERS.as_slice(), files].concat());
        let mut used = vec![false; OTHER_MEANINGS.len()];
        let found = mention(&tree, tree.files.last().unwrap(), &names(&tree), &mut used)?;
        Some((found.owner.clone(), text_of(&found)))
    }

    fn names_one(path: &str, text: &str) -> bool {
        named(&[(path, text)]).is_some()
    }

    #[test]
    fn names_are_the_folders_of_the_model_as_one_types_them() {
        assert_eq!(names(&tree(&FOLDERS)), ["http", "worker-pool"].map(String::from).into());
        let none = check(&tree(&[("crates/model/src/lib.rs", "")]))[0].faults.join("\n");
        assert!(none.contains("no experiment has a folder"), "{none}");
    }

    #[test]
    fn a_path_through_the_experiments_is_found_by_any_way() {
        for text in [
            "use crate::experiments::http::Http;",
            "use crate::experiments::{self as all}; fn f() { all::http::g() }",
            "fn f() { m!(crate::experiments::http::g()) }",
            "use engine::experiments::worker_pool;",
            "use crate::experiments::*; fn f() { http::g() }",
        ] {
            assert!(names_one("crates/engine/src/runner.rs", text), "{text}");
        }
        let (_, text) =
            named(&[("crates/engine/src/a.rs", "\nuse super::experiments::http;")]).unwrap();
        assert_eq!(
            text,
            "crates/engine/src/a.rs: names http in line 2 (engine::experiments::http)"
        );
    }

    #[test]
    fn a_text_that_is_a_name_is_found_in_code_macros_and_attributes() {
        for text in [
            "const A: &str = \"worker-pool\";",
            "fn f() { println!(\"{}\", \"http\") }",
            "struct S { #[serde(rename = \"http\")] x: u8 }",
        ] {
            assert!(names_one("crates/report/src/a.rs", text), "{text}");
        }
    }

    #[test]
    fn other_words_tests_and_tables_name_no_experiment() {
        for (path, text) in [
            ("crates/report/src/a.rs", "/// http\nconst A: &str = \"http headers\";"),
            ("crates/report/src/a.rs", "use crate::http; use crate::experiments::Spec;"),
            ("crates/report/src/a.rs", "#[cfg(test)] mod tests { const A: &str = \"http\"; }"),
            ("crates/report/src/experiments/mod.rs", "mod http; fn f() { http::g(\"http\") }"),
            ("crates/report/tests/a.rs", "const A: &str = \"http\";"),
            ("xtask/src/a.rs", "const A: &str = \"http\";"),
            ("crates/model/src/http/url.rs", "const A: &str = \"http\";"),
        ] {
            assert!(!names_one(path, text), "{path}: {text}");
        }
    }

    #[test]
    fn an_experiment_names_itself_and_no_other() {
        let text = "const A: &str = \"http\"; use crate::experiments::http::B;";
        for own in ["http.rs", "http/deep/c.rs"] {
            assert!(!names_one(&format!("crates/engine/src/experiments/{own}"), text), "{own}");
        }
        let other = [("crates/engine/src/experiments/worker_pool/mod.rs", "use super::http::B;")];
        assert_eq!(named(&other).unwrap().0.as_deref(), Some("worker-pool"));
        let common = [("crates/engine/src/experiments/bench/mod.rs", text)];
        assert_eq!(named(&common).unwrap().0, None);
    }

    #[test]
    fn the_numbers_of_known_files_only_shrink() {
        let one = Mention {
            krate: "a".into(),
            file: "a.rs".into(),
            owner: None,
            named: vec![(1, "http".into(), "\"http\"".into())],
        };
        let found = std::slice::from_ref(&one);
        assert!(judge("files", found, &[("a", 1)]).faults.is_empty());
        let more = judge("files", found, &[]).faults;
        assert!(more.len() == 1 && more[0].contains("limit 0") && more[0].contains("a.rs: names"));
        let less = judge("files", found, &[("a", 2)]).faults;
        assert!(less.len() == 1 && less[0].ends_with("limit to 1"), "{less:?}");
    }
}
