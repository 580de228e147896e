//! `tcptoll explain NAME`: the section of docs/causes.md of that name.

use anyhow::bail;

use crate::exit::Status;

const CAUSES: &str = include_str!("../../../../docs/causes.md");

pub(crate) fn run(name: Option<&str>) -> anyhow::Result<Status> {
    let names: Vec<&str> = sections().map(|(name, _)| name).collect();
    let Some(wanted) = name else {
        println!("{}", names.join("\n"));
        return Ok(Status::Met);
    };
    let Some((name, body)) = sections().find(|(name, _)| *name == wanted) else {
        bail!("explain {wanted}: nothing is called so; there are {}", names.join(", "));
    };
    println!("{name}\n\n{}", body.trim());
    Ok(Status::Met)
}

/// Name and text of each section whose title is a name: lower case, in back quotes or not.
fn sections() -> impl Iterator<Item = (&'static str, &'static str)> {
    CAUSES.split("\n## ").skip(1).filter_map(|section| {
        let (title, body) = section.split_once('\n')?;
        let name = title.trim().trim_matches('`');
        let kebab = name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        kebab.then_some((name, body))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_that_can_be_named_is_explained() {
        let names: Vec<&str> = sections().map(|(name, _)| name).collect();
        for cause in ["accept-queue-full", "syn-queue-full", "local-ports-scarce"] {
            assert!(names.contains(&cause), "{cause} is not in {names:?}");
        }
    }
}
