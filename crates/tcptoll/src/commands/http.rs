//! `http`: load on somebody else's server is said before.

use tcptoll_engine::experiments::http::settings::{HttpSettings, PUBLIC_RATE_PER_S};
use tcptoll_model::record::Resolved;
use tcptoll_model::study::Study;

use super::{is_public, public_notice};

/// What is said if any arm asks a public address.
pub(super) fn notice(typed: &Study, resolved: &[Resolved]) -> anyhow::Result<Option<String>> {
    let arms = typed.arms()?;
    let arms = arms.iter().map(|arm| HttpSettings::from(&arm.settings, resolved));
    let arms = arms.collect::<Result<Vec<_>, _>>()?;
    let rates = arms.iter().map(|arm| arm.load.rate.unwrap_or(PUBLIC_RATE_PER_S));
    let rate = rates.fold(0.0, f64::max);
    // All arms have the one URL of the command line.
    let target = arms.first().and_then(HttpSettings::target).filter(|target| is_public(target));
    let Some(target) = target else { return Ok(None) };
    let load = format!("up to {rate} requests per second will be sent to it");
    Ok(Some(public_notice(&target.typed, &load, "--rate and --requests set other figures")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice_of(line: &str) -> Option<String> {
        let resolved = Resolved {
            name: "db.example:80".to_owned(),
            addresses: vec!["192.0.2.1".to_owned()],
            used: "192.0.2.1".to_owned(),
        };
        notice(&crate::studies::study(line).unwrap(), &[resolved]).unwrap()
    }

    #[test]
    fn load_on_a_public_address_is_said_with_its_rate_and_on_our_own_is_not() {
        // An address for documentation (RFC 5737): nothing is sent to it here.
        let said = notice_of("http http://192.0.2.1/").unwrap();
        assert!(
            said.contains("http://192.0.2.1/ is a public address: up to 20 requests"),
            "{said}"
        );
        let said = notice_of("http --rate 5,300 http://192.0.2.1/").unwrap();
        assert!(said.contains("up to 300 requests"), "{said}");
        assert_eq!(notice_of("http http://127.0.0.1:8080/"), None);
        assert!(notice_of("http http://db.example/").is_some());
        // A name that has not been resolved: nothing is known of it.
        assert_eq!(notice_of("http http://name.invalid/"), None);
        assert_eq!(notice_of("http"), None);
    }
}
