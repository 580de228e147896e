//! What does a mistyped option get as a hint? The right way to name the server where that is meant,
//! and a similar option only if it is similar.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Error};
use tcptoll_model::experiments;
use tcptoll_model::experiments::option::Levels;
use tcptoll_model::experiments::spec::Spec;
use tcptoll_model::study::nearest;

use super::Cli;

/// Options by which users name the server they mean.
const NAMES_OF_SERVERS: [&str; 4] = ["to", "url", "target", "host"];

/// The error with hints that do not mislead; `args` is the command line.
pub(crate) fn mended(mut error: Error, args: impl IntoIterator<Item = OsString>) -> Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(typed) = text(&error, ContextKind::InvalidArg) else { return error };
    let typed = typed.trim_start_matches('-').to_owned();
    let spec = args.into_iter().find_map(|arg| experiments::find(arg.to_str()?));
    let server = spec.filter(|_| NAMES_OF_SERVERS.contains(&typed.as_str())).map(server);
    let similar = text(&error, ContextKind::SuggestedArg);
    let is_similar =
        similar.is_some_and(|similar| nearest(&typed, [similar.trim_start_matches('-')]).is_some());
    if is_similar && server.is_none() {
        return error;
    }
    error.remove(ContextKind::SuggestedArg);
    if let Some(server) = server {
        let tip = ContextValue::StyledStrs(vec![StyledStr::from(server)]);
        error.insert(ContextKind::Suggested, tip);
    }
    // The usage that clap writes has the option that it took for similar.
    if let Some(usage) = spec.and_then(usage) {
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    error
}

fn text(error: &Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    }
}

fn usage(spec: &Spec) -> Option<StyledStr> {
    let mut command = Cli::command();
    command.build();
    Some(command.find_subcommand_mut(spec.name)?.render_usage())
}

/// How to name a server that already runs.
fn server(spec: &Spec) -> String {
    if let Some(written) = written(spec) {
        return format!("name the server like this: tcptoll {written}");
    }
    let others: Vec<String> = experiments::ALL
        .iter()
        .filter_map(|spec| written(spec))
        .map(|w| format!("'{w}'"))
        .collect();
    format!(
        "{} measures in the lab only; these measure a server of yours: {}",
        spec.name,
        others.join(", ")
    )
}

/// `connect --to HOST:PORT`, `http URL`; `None`: it measures in the lab alone.
fn written(spec: &Spec) -> Option<String> {
    let option = spec.options.iter().find(|option| Some(option.name) == spec.target)?;
    let name = match option.levels {
        Levels::Arguments => String::new(),
        _ => format!("--{} ", option.name),
    };
    Some(format!("{} {name}{}", spec.name, option.value))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn said(line: &str) -> String {
        let words = || line.split(' ').map(OsString::from);
        mended(Cli::try_parse_from(words()).unwrap_err(), words()).to_string()
    }

    #[test]
    fn who_names_a_server_by_a_wrong_option_is_told_the_right_way() {
        let http = said("tcptoll http --to 127.0.0.1:80");
        assert!(http.contains("tip: name the server like this: tcptoll http URL\n"), "{http}");
        assert!(http.contains("Usage: tcptoll http [OPTIONS] [URL]"), "{http}");
        assert!(!http.contains("similar") && !http.contains("link-tolerance"), "{http}");
        let connect = said("tcptoll connect --host db.example:5432");
        assert!(connect.contains("like this: tcptoll connect --to HOST:PORT"), "{connect}");
        let alone: Vec<&Spec> =
            experiments::ALL.iter().copied().filter(|spec| spec.target.is_none()).collect();
        assert!(!alone.is_empty());
        for spec in alone {
            let text = said(&format!("tcptoll {} --to 127.0.0.1:80", spec.name));
            let says = format!("tip: {} measures in the lab only; ", spec.name);
            assert!(text.contains(&says) && text.contains("'connect --to HOST:PORT'"), "{text}");
            assert!(!text.contains("similar"), "{text}");
        }
    }

    #[test]
    fn an_option_is_called_similar_only_if_it_is() {
        let near = said("tcptoll connect --conections 5");
        assert!(near.contains("tip: a similar argument exists: '--connections'"), "{near}");
        let far = said("tcptoll connect --first-connection-timeout 5");
        assert!(!far.contains("similar") && far.contains("unexpected argument"), "{far}");
        let nothing = said("tcptoll study --to 127.0.0.1:80");
        assert!(!nothing.contains("similar"), "{nothing}");
        // Every other error stays as it is.
        assert!(said("tcptoll connect --rounds 0").contains("--rounds"));
    }
}
