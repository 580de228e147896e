//! `srcset`: which of several images a browser takes on a screen of one device pixel per CSS pixel.
//!
//! Source: HTML, section 4.8.4.2 (srcset attributes) and 4.8.4.3.7 (selecting an image source).

use super::media;

/// Candidates that are looked at.
const CANDIDATES: usize = 64;

/// The URL that is taken. None: the list has none that is well formed.
pub(super) fn choose(list: &str, sizes: Option<&str>) -> Option<String> {
    let width = sizes.and_then(slot).unwrap_or(media::WIDTH);
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
        if media::applies(condition) {
            return media::pixels(length).filter(|width| *width > 0.0);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_image_that_fills_its_place_is_taken() {
        let widths = "s.jpg 480w, m.jpg 800w, l.jpg 1600w";
        assert_eq!(choose(widths, None).as_deref(), Some("l.jpg"));
        assert_eq!(
            choose(widths, Some("(min-width: 900px) 640px, 100vw")).as_deref(),
            Some("m.jpg")
        );
        assert_eq!(choose("a.jpg, b.jpg 2x", None).as_deref(), Some("a.jpg"));
        assert_eq!(choose("b.jpg 0.5x", None).as_deref(), Some("b.jpg"));
        assert_eq!(choose(", ,", None), None);
        assert_eq!(choose("a.jpg 3q", None), None);
    }
}
