//! `http`: a command line becomes a study, and load on somebody else's server is said before.

use std::net::ToSocketAddrs as _;

use tcptoll_engine::experiments::http_settings::{HttpSettings, PUBLIC_RATE_PER_S, PlaceSettings};
use tcptoll_model::study::Study;

use super::{public_notice, study};
use crate::cli::HttpArgs;
use crate::exit::{Status, say};
use crate::{output, studies};

/// Does what `tcptoll http …` says.
pub(super) fn run(args: &HttpArgs) -> anyhow::Result<Status> {
    let typed = studies::from_http(args)?;
    if let Some(record) = &args.rounds.resume {
        studies::check_alone(&typed, &studies::from_http(&HttpArgs::default())?)?;
        return output::resume(record, &args.output);
    }
    if let Some(notice) = notice(&typed)? {
        say(&notice);
    }
    study::start(&typed, &args.rounds, &args.output)
}

/// What is said if any arm asks a public address.
fn notice(typed: &Study) -> anyhow::Result<Option<String>> {
    let arms = typed.arms()?;
    let arms = arms.iter().map(|arm| HttpSettings::from(&arm.settings));
    let mut arms = arms.collect::<Result<Vec<_>, _>>()?;
    let rates = arms.iter().map(|arm| arm.load.rate.unwrap_or(PUBLIC_RATE_PER_S));
    let rate = rates.fold(0.0, f64::max);
    // All arms have the one URL of the command line.
    let Some(target) = arms.first_mut().and_then(public_target) else { return Ok(None) };
    let load = format!("up to {rate} requests per second will be sent to it");
    Ok(Some(public_notice(&target, &load, "--rate and --requests set other figures")))
}

/// The URL as typed, if its address is not of this machine or its own network. A name that cannot be
/// resolved is for the trial to refuse.
fn public_target(settings: &mut HttpSettings) -> Option<String> {
    let PlaceSettings::Target(urls, typed) = &mut settings.place else { return None };
    let typed = typed.clone();
    let url = urls.first_mut()?;
    let address = (url.host.as_str(), url.port).to_socket_addrs().ok()?.next()?;
    url.host = address.ip().to_string();
    settings.seems_public().then_some(typed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice_of(args: &HttpArgs) -> Option<String> {
        notice(&studies::from_http(args).unwrap()).unwrap()
    }

    #[test]
    fn load_on_a_public_address_is_said_with_its_rate_and_on_our_own_is_not() {
        let to = |url: &str, rate: &[&str]| HttpArgs {
            url: vec![url.to_owned()],
            rate: rate.iter().map(|rate| (*rate).to_owned()).collect(),
            ..HttpArgs::default()
        };
        // An address for documentation (RFC 5737): nothing is sent to it here.
        let said = notice_of(&to("http://192.0.2.1/", &[])).unwrap();
        assert!(
            said.contains("http://192.0.2.1/ is a public address: up to 20 requests"),
            "{said}"
        );
        let said = notice_of(&to("http://192.0.2.1/", &["5", "300"])).unwrap();
        assert!(said.contains("up to 300 requests"), "{said}");
        assert_eq!(notice_of(&to("http://127.0.0.1:8080/", &[])), None);
        assert_eq!(notice_of(&to("http://name.invalid/", &[])), None);
        assert_eq!(notice_of(&HttpArgs::default()), None);
    }
}
