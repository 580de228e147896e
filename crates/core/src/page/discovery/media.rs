//! Media queries, for the window of a browser on a desk: a screen of 1280 × 720 CSS pixels, light.
//!
//! Source: Media Queries Level 4. What is not known applies, so that nothing a browser may need is
//! missing.

/// Width of the window, CSS pixels.
pub(super) const WIDTH: f64 = 1280.0;
const HEIGHT: f64 = 720.0;

/// Whether a list of media queries applies.
pub(super) fn applies(list: &str) -> bool {
    let list = list.trim().to_ascii_lowercase();
    list.is_empty() || list.split(',').any(|query| query_applies(query.trim()))
}

fn query_applies(query: &str) -> bool {
    let (negated, query) = match query.strip_prefix("not ") {
        Some(rest) => (true, rest.trim()),
        None => (false, query.strip_prefix("only ").unwrap_or(query).trim()),
    };
    let all = query.split(" and ").all(|part| {
        let part = part.trim();
        match part.strip_prefix('(').and_then(|part| part.strip_suffix(')')) {
            Some(feature) => feature_applies(feature.trim()),
            None => matches!(part, "" | "all" | "screen"),
        }
    });
    all != negated
}

fn feature_applies(feature: &str) -> bool {
    let Some((name, value)) = feature.split_once(':') else {
        return !matches!(feature, "print" | "monochrome" | "grid");
    };
    let (name, value) = (name.trim(), value.trim());
    let length = || pixels(value);
    match name {
        "min-width" => length().is_none_or(|least| WIDTH >= least),
        "max-width" => length().is_none_or(|most| WIDTH <= most),
        "min-height" => length().is_none_or(|least| HEIGHT >= least),
        "max-height" => length().is_none_or(|most| HEIGHT <= most),
        "orientation" => value == "landscape",
        "prefers-color-scheme" => value == "light",
        "prefers-reduced-motion" | "prefers-contrast" => value == "no-preference",
        "hover" | "any-hover" => value == "hover",
        "pointer" | "any-pointer" => value == "fine",
        "min-resolution" | "-webkit-min-device-pixel-ratio" | "min-device-pixel-ratio" => {
            let ratio = value.trim_end_matches("dppx").trim_end_matches('x');
            let dots = value.strip_suffix("dpi").and_then(|dots| dots.parse::<f64>().ok());
            dots.map_or_else(
                || ratio.parse::<f64>().is_ok_and(|ratio| ratio <= 1.0),
                |dots| dots <= 96.0,
            )
        }
        _ => true,
    }
}

/// A length in CSS pixels. None: a unit that depends on more than the window.
pub(super) fn pixels(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+')))?;
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    Some(match unit.trim() {
        "px" => number,
        "em" | "rem" => number * 16.0,
        "vw" => number * WIDTH / 100.0,
        "vh" => number * HEIGHT / 100.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_apply_to_a_light_screen_of_1280_by_720() {
        for list in [
            "",
            "all",
            "screen",
            "only screen and (min-width: 600px)",
            "print, screen",
            "(orientation: landscape)",
            "not print",
            "(max-width: 80em)",
        ] {
            assert!(applies(list), "{list}");
        }
        for list in [
            "print",
            "screen and (max-width: 600px)",
            "(prefers-color-scheme: dark)",
            "not all",
            "(min-resolution: 2dppx)",
            "speech",
        ] {
            assert!(!applies(list), "{list}");
        }
    }
}
