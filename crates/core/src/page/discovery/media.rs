//! Media queries, for the window of a browser on a desk: a screen of 1280 × 720 CSS pixels, light; and
//! `srcset`: which of several images it takes, at one device pixel per CSS pixel.
//!
//! Source: Media Queries Level 4; HTML, section 4.8.4.2 (srcset attributes) and 4.8.4.3.7 (selecting an
//! image source). What is not known applies, so that nothing a browser may need is missing.

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

/// Candidates that are looked at.
const CANDIDATES: usize = 64;

/// The URL that is taken. None: the list has none that is well formed.
pub(super) fn choose_image(list: &str, sizes: Option<&str>) -> Option<String> {
    let width = sizes.and_then(slot).unwrap_or(WIDTH);
    let mut rest = list;
    let mut candidates: Vec<(&str, f64)> = Vec::new();
    while candidates.len() < CANDIDATES {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ',');
        if rest.is_empty() {
            break;
        }
        let end = rest.find(|c: char| c.is_ascii_whitespace()).unwrap_or(rest.len());
        let (url, after) = rest.split_at(end);
        let bare = url.trim_end_matches(',');
        let (descriptor, next) = if bare.len() < url.len() {
            ("", after)
        } else {
            after.split_once(',').unwrap_or((after, ""))
        };
        rest = next;
        let descriptor = descriptor.trim();
        let density = match descriptor.split_at_checked(descriptor.len().saturating_sub(1)) {
            _ if descriptor.is_empty() => Some(1.0),
            Some((number, "x")) => number.parse::<f64>().ok(),
            Some((number, "w")) => number.parse::<f64>().ok().map(|pixels| pixels / width),
            _ => None,
        };
        if let Some(density) = density.filter(|density| *density > 0.0) {
            candidates.push((bare, density));
        }
    }
    candidates.sort_by(|a, b| a.1.total_cmp(&b.1));
    let enough = candidates.iter().find(|(_, density)| *density >= 1.0);
    enough.or(candidates.last()).map(|(url, _)| (*url).to_owned())
}

/// The width that the image will have, CSS pixels.
fn slot(sizes: &str) -> Option<f64> {
    for part in sizes.split(',') {
        let part = part.trim();
        let at = part.rfind(|c: char| c.is_ascii_whitespace()).map_or(0, |at| at + 1);
        let (condition, length) = part.split_at(at);
        if applies(condition) {
            return pixels(length).filter(|width| *width > 0.0);
        }
    }
    None
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

    #[test]
    fn the_smallest_image_that_fills_its_place_is_taken() {
        let widths = "s.jpg 480w, m.jpg 800w, l.jpg 1600w";
        assert_eq!(choose_image(widths, None).as_deref(), Some("l.jpg"));
        assert_eq!(
            choose_image(widths, Some("(min-width: 900px) 640px, 100vw")).as_deref(),
            Some("m.jpg")
        );
        assert_eq!(choose_image("a.jpg, b.jpg 2x", None).as_deref(), Some("a.jpg"));
        assert_eq!(choose_image("b.jpg 0.5x", None).as_deref(), Some("b.jpg"));
        assert_eq!(choose_image(", ,", None), None);
        assert_eq!(choose_image("a.jpg 3q", None), None);
    }
}
