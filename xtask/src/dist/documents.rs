//! Documents that leave the checkout: their links lead to the repository.

use super::{REPOSITORY, Release};

/// Markdown whose links to files of the checkout lead to this version of them in the repository.
pub(super) fn with_addresses(markdown: &str, release: &Release) -> String {
    rewritten(markdown, &format!("v{}", release.version))
}

fn rewritten(markdown: &str, tag: &str) -> String {
    let mut parts = markdown.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // `![` begins a picture, which is not shown from a page about it.
        let is_picture = text.rfind('[').is_some_and(|at| text[..at].ends_with('!'));
        text += "](";
        if !(part.starts_with('#') || part.split(')').next().is_some_and(|to| to.contains(':'))) {
            let kind = if is_picture { "raw" } else { "blob" };
            text += &format!("{REPOSITORY}/{kind}/{tag}/");
        }
        text += part;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_files_lead_to_the_repository_and_others_stay() {
        let text = "![a](docs/a.svg) [b](docs/b.md#c) [d](#d) [e](https://e.example/f) (g](h)";
        let expected = "![a](https://github.com/tcptoll/tcptoll/raw/v1.2.3/docs/a.svg) \
                        [b](https://github.com/tcptoll/tcptoll/blob/v1.2.3/docs/b.md#c) [d](#d) \
                        [e](https://e.example/f) (g](https://github.com/tcptoll/tcptoll/blob/v1.2.3/h)";
        assert_eq!(rewritten(text, "v1.2.3"), expected);
        assert_eq!(rewritten("none", "v1"), "none");
    }
}
