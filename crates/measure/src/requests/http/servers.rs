//! Several servers on one command line: an arm of each.
//!
//! A study with a URL in each arm could already do it, so the command line becomes that study, here and not
//! where trials are run. URLs of one server stay one arm and are requested in turn.

use serde_json::Value;

use tcptoll_core::http::url::Url;
use tcptoll_core::study::{Compare, NamedArm, Study, level_text};

/// URLs of several servers become an arm of each, named after its server; several of one server stay
/// together and are asked for in turn.
pub(super) fn complete(study: &mut Study) {
    let Some(typed) = study.settings.get("url").map(level_text) else { return };
    let texts: Vec<String> = typed.split_whitespace().flat_map(separated).collect();
    study.settings.insert("url".to_owned(), Value::from(texts.join(" ")));
    let mut servers: Vec<(Url, Vec<String>)> = Vec::new();
    for text in texts {
        // What is no URL is refused where settings are checked.
        let Ok(url) = Url::typed(&text) else { return };
        let same = |known: &&mut (Url, Vec<String>)| {
            (known.0.tls, &known.0.host, known.0.port) == (url.tls, &url.host, url.port)
        };
        match servers.iter_mut().find(same) {
            Some((_, texts)) => texts.push(text),
            None => servers.push((url, vec![text])),
        }
    }
    if servers.len() < 2 {
        return;
    }
    study.settings.remove("url");
    let one_scheme = servers.iter().all(|(url, _)| url.tls == servers[0].0.tls);
    let name = |url: &Url| match (one_scheme, url.tls) {
        (true, _) => url.authority(),
        (false, true) => format!("https://{}", url.authority()),
        (false, false) => format!("http://{}", url.authority()),
    };
    study.named_arms = servers
        .iter()
        .map(|(url, texts)| NamedArm {
            name: name(url),
            settings: [("url".to_owned(), Value::from(texts.join(" ")))].into(),
            ..NamedArm::default()
        })
        .collect();
    let first = Value::from(study.named_arms[0].name.as_str());
    study.compare = vec![Compare { against: Some(first), ..Compare::default() }];
}

/// `http://a/,http://b/` are two URLs; a comma after the path of a URL belongs to it, unless a scheme
/// follows.
fn separated(word: &str) -> Vec<String> {
    let begins = |text: &str| {
        let lower = text.to_ascii_lowercase();
        lower.starts_with("http://") || lower.starts_with("https://")
    };
    let has_path =
        |url: &str| url.split_once("://").map_or(url, |(_, rest)| rest).contains(['/', '?']);
    let mut urls: Vec<String> = Vec::new();
    for piece in word.split(',') {
        match urls.last_mut() {
            Some(url) if has_path(url) && !begins(piece) => {
                url.push(',');
                url.push_str(piece);
            }
            _ => urls.push(piece.to_owned()),
        }
    }
    urls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(url: &str) -> Study {
        let mut study = Study::default();
        study.settings.insert("url".to_owned(), Value::from(url));
        complete(&mut study);
        study
    }

    #[test]
    fn urls_of_several_servers_are_an_arm_each() {
        let study = completed("http://a:81/x,http://a:81/y,z b:82,HTTP://a:81/w");
        let arms: Vec<(&str, String)> = study
            .named_arms
            .iter()
            .map(|arm| (arm.name.as_str(), level_text(&arm.settings["url"])))
            .collect();
        let first = "http://a:81/x http://a:81/y,z HTTP://a:81/w".to_owned();
        assert_eq!(arms, [("a:81", first), ("b:82", "b:82".to_owned())]);
        assert!(!study.settings.contains_key("url"));
        let names = |url| completed(url).named_arms.into_iter().map(|arm| arm.name);
        assert!(names("http://a/ https://a/").eq(["http://a", "https://a"]));
    }

    #[test]
    fn urls_of_one_server_stay_one_arm() {
        for (typed, kept) in [
            ("http://a/x http://a/y", "http://a/x http://a/y"),
            ("a:80/x,y", "a:80/x,y"),
            ("http://a/,http://b:0/", "http://a/ http://b:0/"),
        ] {
            let study = completed(typed);
            assert!(study.named_arms.is_empty(), "{typed}");
            assert_eq!(study.settings["url"], kept);
        }
    }
}
