//! What is printed for the asking: help, schema, completions, man pages, studies, links, causes.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::tcptoll;

fn printed(args: &[&str]) -> String {
    let ran = tcptoll(args);
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{args:?}");
    assert!(!ran.stdout.contains('\x1b'), "colour in a pipe: {args:?}");
    ran.stdout
}

/// Sub-commands that are no experiments.
const OTHERS: [&str; 11] = [
    "tour",
    "serve",
    "study",
    "report",
    "lab",
    "links",
    "merge",
    "explain",
    "schema",
    "completions",
    "man",
];

fn experiments() -> impl Iterator<Item = &'static str> {
    tcptoll_measure::experiments::ALL.iter().map(|spec| spec.name)
}

#[test]
fn a_locale_without_unicode_gets_ascii() {
    for (name, value) in [("LC_ALL", "C"), ("LANG", "de_DE.ISO-8859-1"), ("LC_CTYPE", "POSIX")] {
        for args in
            [&["study", "list"][..], &["links"], &["explain", "keepalive-inert"], &["--help"]]
        {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tcptoll"));
            for other in ["LC_ALL", "LC_CTYPE", "LANG"] {
                command.env_remove(other);
            }
            let output = command.env(name, value).args(args).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{args:?}");
            assert!(output.stdout.is_ascii() && !output.stdout.is_empty(), "{name} {args:?}");
        }
    }
}

#[test]
fn help_is_at_most_as_wide_as_the_terminal() {
    let others = [
        vec!["--help"],
        vec!["serve", "keepalive", "--help"],
        vec!["lab", "--help"],
        vec!["doctor", "--help"],
        vec!["tune", "--help"],
    ];
    for args in experiments().map(|name| vec![name, "--help"]).chain(others) {
        for line in printed(&args).lines() {
            assert!(console::measure_text_width(line) <= 100, "{line}");
        }
    }
}

#[test]
fn the_general_help_lists_every_command_and_every_exit_status() {
    let help = printed(&["help"]);
    for command in experiments().chain(OTHERS) {
        assert!(help.contains(&format!("\n  {command} ")), "{command}");
    }
    for status in ["0 measured", "1 measured", "2 not measured", "3 measured", "130 and 143"] {
        assert!(help.contains(status), "{status}");
    }
}

#[test]
fn the_version_is_the_package_s() {
    let version = concat!("tcptoll ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(printed(&["--version"]), version);
    let verbose = printed(&["--version", "--verbose"]);
    assert!(verbose.starts_with(version), "{verbose}");
    for row in ["\ncommit ", "\nbuild ", "\nlibc ", "\nfeatures "] {
        assert!(verbose.contains(row), "{verbose}");
    }
}

#[test]
fn every_schema_is_a_json_schema_that_an_empty_object_does_not_follow() {
    for name in ["doctor", "study", "summary", "tune", "watch", "watch-report"] {
        let schema: Value = serde_json::from_str(&printed(&["schema", name])).unwrap();
        jsonschema::meta::validate(&schema).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        assert!(!validator.is_valid(&serde_json::json!({})), "{name}");
    }
    assert_eq!(printed(&["schema"]), printed(&["schema", "summary"]));
}

/// The options that a help describes: `    --out <FILE>`, `-H, --header <NAME: VALUE>`.
fn described(help: &str) -> BTreeSet<&str> {
    let line = |line: &str| line.starts_with("  ") && line.trim_start().starts_with('-');
    let long = |line: &'_ str| Some(line.find("--")? + 2);
    let name = |line: &str| long(line).map(|start| start..start + length(&line[start..]));
    help.lines().filter(|text| line(text)).filter_map(|text| Some(&text[name(text)?])).collect()
}

fn length(name: &str) -> usize {
    name.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(name.len())
}

#[test]
fn the_description_of_the_experiments_has_every_option_of_their_help_with_its_default() {
    let experiments: Value = serde_json::from_str(&printed(&["schema", "experiments"])).unwrap();
    let general = printed(&["study", "run", "--help"]);
    let general = described(&general);
    for experiment in experiments.as_array().unwrap() {
        let name = experiment["name"].as_str().unwrap();
        let help = printed(&[name, "--help"]);
        let options = experiment["options"].as_array().unwrap();
        let find = |name: &str| options.iter().find(|option| option["name"] == name);
        let unwrapped = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for name in described(&help).difference(&general) {
            let option = find(name).unwrap_or_else(|| panic!("{name} is not described"));
            if let Some(default) = option["default"]["text"].as_str() {
                assert!(unwrapped.contains(&format!("[default: {default}]")), "{name}");
            }
        }
        let typed =
            |option: &&Value| option["levels"] != "setting" && option["levels"] != "arguments";
        let typed = options.iter().filter(typed).count();
        assert_eq!(described(&help).difference(&general).count(), typed, "{name}");
        for key in ["question", "about", "primary", "margin"] {
            assert!(!experiment[key].is_null(), "{name}: {key}");
        }
        assert!(experiment["operation"]["many"].is_string(), "{name}");
        let metric = &experiment["metrics"][0];
        assert!(["name", "unit", "words", "better"].iter().all(|key| metric[key].is_string()));
    }
    let all: Vec<&str> = tcptoll_measure::experiments::ALL.iter().map(|spec| spec.name).collect();
    let named = experiments.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap());
    assert_eq!(named.collect::<Vec<_>>(), all);
}

#[test]
fn completions_of_every_shell_know_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = printed(&["completions", shell]);
        for word in ["connect", "study", "explain", "fail-if"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn completions_know_the_values_that_have_names() {
    let script = printed(&["completions", "bash"]);
    for names in ["\"direct loopback same-room", "\"off full resumed\"", " avalanche-2021 backlog"]
    {
        assert!(script.contains(names), "{names}");
    }
}

#[test]
fn the_man_page_is_printed_and_one_per_command_is_written() {
    for (words, title) in [
        (&["man"][..], ".TH tcptoll 1 \" \""),
        (&["man", "keepalive"], ".TH tcptoll-keepalive 1 \" \""),
        (&["man", "study", "list"], ".TH tcptoll-study-list 1 \" \""),
    ] {
        let page = printed(words);
        let source = concat!("\"tcptoll ", env!("CARGO_PKG_VERSION"), "\" \"User Commands\"\n");
        assert!(page.contains(&format!("{title} {source}")), "{words:?}");
        assert!(!page.contains("EXTRA") && page.ends_with('\n'), "{words:?}");
    }
    let page = printed(&["man", "http"]);
    assert!(page.contains(".SH EXAMPLES\n.nf\n  tcptoll http\n"), "{page}");
    assert_eq!(page.matches(".nf\n").count(), page.matches(".fi\n").count());
    // Every option is described, also one that the short help leaves out.
    let lines: Vec<&str> = page.lines().collect();
    for pair in lines.windows(3).filter(|lines| lines[0] == ".TP") {
        assert!(!pair[2].starts_with('.') && !pair[2].is_empty(), "{pair:?}");
    }
    let page = printed(&["man"]);
    assert!(page.contains(".SH EXIT STATUS\n") && page.contains(".SS Questions and commands\n"));
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().display().to_string();
    let ran = tcptoll(&["man", "--dir", &name]);
    let says = format!("wrote {name}\n");
    assert_eq!((ran.status, ran.stdout, ran.stderr), (Some(0), String::new(), says));
    for command in experiments().chain(OTHERS) {
        let page = folder.path().join(format!("tcptoll-{command}.1"));
        assert!(page.is_file(), "{}", page.display());
    }
}

#[test]
fn studies_are_listed_shown_and_checked_with_their_arms() {
    let list = printed(&["study", "list"]);
    assert_eq!(printed(&["study"]), list, "without a word they are listed");
    for (name, _) in tcptoll::studies::BUILT_IN {
        // The studies of the tour are one line.
        let listed = if name.starts_with("tour-") { "tour-*" } else { name };
        assert!(list.lines().any(|line| line.split(' ').next() == Some(listed)), "{name}");
        let checked = printed(&["study", "check", name]);
        assert!(checked.contains(" at least "), "{checked}");
    }
    narrow(&list);
    let shown = printed(&["study", "show", "connect-2021"]);
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::fs::write(file.path(), shown).unwrap();
    let path = file.path().display().to_string();
    assert_eq!(
        printed(&["study", "check", &path]),
        printed(&["study", "check", "connect-2021"]),
        "what is shown can be run from a file"
    );
}

/// What has no terminal is laid out for 80 columns.
fn narrow(text: &str) {
    for line in text.lines() {
        assert!(console::measure_text_width(line) <= 80, "{line}");
    }
}

#[test]
fn a_dry_run_says_what_is_looked_at_only_where_something_is() {
    for (args, looked) in [
        (&["keepalive"][..], false),
        (&["connect", "--rounds", "3"], false),
        (&["connect", "--target", "ci 1%"], true),
        (&["keepalive", "--mechanism", "none,tcp"], true),
        (&["keepalive", "--mechanism", "none,tcp", "--writer", "off"], false),
    ] {
        let plan = printed(&[args, &["--dry-run"]].concat());
        let words = plan.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words.contains("primary metric: "), looked, "{args:?}: {plan}");
        narrow(&plan);
    }
}

#[test]
fn every_named_link_is_listed_with_where_its_figures_are_from() {
    let list = printed(&["links"]);
    for profile in tcptoll_core::link::PROFILES {
        assert!(list.contains(profile.name) && list.contains(profile.source), "{}", profile.name);
    }
    for (key, what, how) in tcptoll_core::link::KEYS {
        assert!(list.contains(what) && list.contains(how), "{key}");
    }
}

#[test]
fn every_cause_and_error_class_is_explained() {
    let names = printed(&["explain"]);
    let causes = ["accept-queue-full", "syn-queue-full", "local-ports-scarce"];
    let classes = [
        "connect-refused",
        "connect-timeout",
        "dns",
        "local-ports",
        "local-fds",
        "local-memory",
        "reset",
        "timeout",
        "truncated",
    ];
    for name in causes.into_iter().chain(classes) {
        let listed = names.split([' ', ',', '\n']).any(|word| word == name);
        assert!(listed, "{name} is not in: {names}");
        let text = printed(&["explain", name]);
        assert!(text.starts_with(name) && text.lines().count() <= 22, "{text}");
        let long = printed(&["explain", name, "--long"]);
        assert!(long.starts_with(name) && long.len() > name.len() + 40, "{long}");
        narrow(&text);
        narrow(&long);
    }
    narrow(&names);
}

#[test]
fn words_of_a_log_are_explained_or_their_pages_are_listed() {
    let one = printed(&["explain", "ECONNRFUSED"]);
    let says = "nothing for 'ECONNRFUSED'; did you mean ECONNREFUSED?\n\nconnect-refused: ";
    assert!(one.starts_with(says), "{one}");
    let several = printed(&["explain", "502"]);
    assert!(several.starts_with("5 pages for '502':\n\nclose-race  "), "{several}");
    let words = ["explain", "connect()", "failed", "(111:", "Connection", "refused)"];
    assert!(printed(&words).starts_with("connect-refused: "));
}

#[test]
fn the_apparmor_profile_names_this_binary() {
    let profile = printed(&["lab", "--apparmor-profile"]);
    assert!(profile.contains("userns,"));
    assert!(profile.contains(env!("CARGO_BIN_EXE_tcptoll")), "{profile}");
}
