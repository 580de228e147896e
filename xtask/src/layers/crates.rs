//! Which crate may depend on which.

use cargo_metadata::{DependencyKind, Package};

use super::Finding;

/// Crate, and the crates of ours that it may depend on. A new crate must be placed here.
const CRATES: &[(&str, &[&str])] = &[
    ("tcptoll", &["tcptoll-engine", "tcptoll-lab", "tcptoll-report", "tcptoll-model"]),
    ("tcptoll-engine", &["tcptoll-lab", "tcptoll-kernel", "tcptoll-model"]),
    ("tcptoll-lab", &["tcptoll-kernel", "tcptoll-model", "tcp-heartbeat"]),
    ("tcptoll-report", &["tcptoll-model"]),
    ("tcptoll-kernel", &["tcptoll-model"]),
    ("tcptoll-model", &[]),
    // For programs of all kinds: it knows nothing of tcptoll.
    ("tcp-heartbeat", &[]),
    ("xtask", &[]),
];

/// Dependencies, with what begins with them and a dash, of the command line alone.
const COMMAND_LINE_ONLY: &[&str] = &["clap", "anyhow"];
/// The command line, and what contributors type.
const COMMAND_LINE: &[&str] = &["tcptoll", "xtask"];

/// Arrows between crates, from a package and its manifest.
pub(super) fn check(file: &str, package: &Package) -> Vec<Finding> {
    let finding = |text: String| Finding { file: file.to_owned(), line: None, text };
    let name = package.name.as_str();
    let Some((_, allowed)) = CRATES.iter().find(|(known, _)| *known == name) else {
        return vec![finding(format!(
            "crate {name} is not in the table of crates in xtask/src/layers/crates.rs: place it there"
        ))];
    };
    let mut findings = Vec::new();
    // Dependencies of tests do not ship, so no arrow binds them.
    let ships = |kind| matches!(kind, DependencyKind::Normal | DependencyKind::Build);
    for dependency in package.dependencies.iter().filter(|dependency| ships(dependency.kind)) {
        let dependency = dependency.name.as_str();
        let ours = CRATES.iter().any(|(known, _)| *known == dependency);
        if ours && !allowed.contains(&dependency) {
            findings.push(finding(format!(
                "{name} must not depend on {dependency}; allowed: {}",
                if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") }
            )));
        }
        let reserved = COMMAND_LINE_ONLY.iter().any(|reserved| {
            dependency
                .strip_prefix(reserved)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', '-']))
        });
        if reserved && !COMMAND_LINE.contains(&name) {
            findings.push(finding(format!("only {} may depend on {dependency}", COMMAND_LINE[0])));
        }
    }
    findings
}

/// The lint that the crates inherit must be the strict one.
pub(super) fn check_lints_of_workspace(manifest: &toml::Table) -> Option<Finding> {
    let level = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("lints")?.get("rust")?.get("unsafe_code")?.as_str());
    (!matches!(level, Some("deny" | "forbid"))).then(|| Finding {
        file: "Cargo.toml".to_owned(),
        line: None,
        text: "workspace.lints.rust: unsafe_code must be \"deny\"".to_owned(),
    })
}

/// And each crate must inherit them; `cargo metadata` does not say.
pub(super) fn check_lints(file: &str, manifest: &toml::Table) -> Option<Finding> {
    let inherits = manifest.get("lints").and_then(|lints| lints.get("workspace")?.as_bool());
    (inherits != Some(true)).then(|| Finding {
        file: file.to_owned(),
        line: None,
        text: "it must inherit the lints: [lints] workspace = true".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What is said of a package with these dependencies, each with its kind.
    fn findings(name: &str, dependencies: &[(&str, Option<&str>)]) -> Vec<String> {
        let dependencies: Vec<_> = dependencies
            .iter()
            .map(|(name, kind)| {
                json!({
                    "name": name, "req": "*", "kind": kind, "optional": false, "features": [],
                    "uses_default_features": true, "rename": "other", "target": "cfg(unix)",
                })
            })
            .collect();
        let package = json!({
            "name": name, "version": "1.0.0", "id": name, "dependencies": dependencies,
            "targets": [], "features": {}, "manifest_path": "Cargo.toml",
        });
        let package = serde_json::from_value(package).unwrap();
        check("Cargo.toml", &package).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn crates_depend_downward_by_whichever_name_and_on_every_target() {
        assert!(findings("tcptoll-report", &[("tcptoll-model", None)]).is_empty());
        assert_eq!(
            findings("tcptoll-report", &[("tcptoll-engine", None)]),
            ["tcptoll-report must not depend on tcptoll-engine; allowed: tcptoll-model"]
        );
        assert_eq!(findings("tcptoll-report", &[("tcptoll-kernel", Some("build"))]).len(), 1);
        assert_eq!(findings("tcptoll-model", &[("xtask", None)]).len(), 1);
        assert!(findings("tcptoll-report", &[("tcptoll-engine", Some("dev"))]).is_empty());
    }

    #[test]
    fn arguments_and_chains_of_causes_belong_to_the_command_line() {
        let both = [("clap_mangen", None), ("anyhow", None)];
        assert_eq!(findings("tcptoll-kernel", &both).len(), 2);
        assert!(findings("tcptoll", &both).is_empty());
    }

    #[test]
    fn a_crate_must_be_placed_and_inherit_the_lints() {
        assert_eq!(findings("tcptoll-novelty", &[]).len(), 1);
        assert!(check_lints("Cargo.toml", &toml::Table::new()).is_some());
        let inherits = "[lints]\nworkspace = true".parse().unwrap();
        assert!(check_lints("Cargo.toml", &inherits).is_none());
        let lax = "[workspace.lints.rust]\nunsafe_code = 'warn'".parse().unwrap();
        assert!(check_lints_of_workspace(&lax).is_some());
        let strict = "[workspace.lints.rust]\nunsafe_code = 'deny'".parse().unwrap();
        assert!(check_lints_of_workspace(&strict).is_none());
    }
}
