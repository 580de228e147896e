//! Names that match a pattern of the shell.

/// Whether a name matches: `*`, `?` and `[a-z]`, `[!a]`. A leading dot must be written.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut read) = (0, 0);
    // The last star, and how much of the name it takes: one step back is enough.
    let mut star: Option<(usize, usize)> = None;
    while read < name.len() {
        let step = match pattern.get(at) {
            Some('*') => {
                star = Some((at, read));
                at += 1;
                continue;
            }
            Some(_) => one(&pattern[at..], name[read]),
            None => None,
        };
        match (step, star) {
            (Some(length), _) => {
                at += length;
                read += 1;
            }
            (None, Some((star_at, taken))) => {
                at = star_at + 1;
                read = taken + 1;
                star = Some((star_at, read));
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|&c| c == '*')
}

/// Whether a name has a wildcard.
pub(super) fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

/// How much of the pattern stands for this character, if it fits.
fn one(pattern: &[char], c: char) -> Option<usize> {
    match pattern.first()? {
        '?' => Some(1),
        '[' => {
            let negated = matches!(pattern.get(1), Some('!' | '^'));
            let begin = 1 + usize::from(negated);
            // A bracket right behind the first is one of the set.
            let end = begin + 1 + pattern.get(begin + 1..)?.iter().position(|&c| c == ']')?;
            let set = &pattern[begin..end];
            let mut found = false;
            let mut at = 0;
            while let Some(&low) = set.get(at) {
                let high = set.get(at + 2).filter(|_| set.get(at + 1) == Some(&'-'));
                found |= (low..=*high.unwrap_or(&low)).contains(&c);
                at += if high.is_some() { 3 } else { 1 };
            }
            (found != negated).then_some(end + 1)
        }
        '\\' => pattern.get(1).filter(|&&next| next == c).map(|_| 2),
        same => (*same == c).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_in_the_shell() {
        for (pattern, name, expected) in [
            ("*.conf", "a.conf", true),
            ("*.conf", ".conf", false),
            (".*", ".conf", true),
            ("*.conf", "a.conf.bak", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("?", "ab", false),
            ("[0-9][!0-9]*", "5a", true),
            ("[0-9][!0-9]*", "55", false),
            ("[]a]", "]", true),
            ("[ab", "[ab", false),
            ("*", "", true),
            ("\\*", "*", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        assert!(!matches(&format!("{}b", "a*".repeat(60)), &"a".repeat(255)));
    }
}
