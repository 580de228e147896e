//! Which status codes count as success?

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::units::UnitError;

/// Codes from the first to the second, both included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected(Vec<(u16, u16)>);

impl Default for Expected {
    /// 2xx and 3xx.
    fn default() -> Self {
        Self(vec![(200, 399)])
    }
}

impl Expected {
    /// Whether this code is a success.
    pub fn has(&self, status: u16) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&status))
    }
}

impl FromStr for Expected {
    type Err = UnitError;

    /// Reads `200`, `2xx`, or several with `+` between: `2xx+404`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const REMEDY: &str =
            "write a code or a class, or several with + between: 200, 2xx, 2xx+404";
        let wrong = || UnitError::new(text, "is not a status code", REMEDY);
        let one = |part: &str| -> Option<(u16, u16)> {
            if let Some(class) = part.strip_suffix("xx") {
                let class: u16 = class.parse().ok().filter(|class| (2..=9).contains(class))?;
                return Some((class * 100, class * 100 + 99));
            }
            let code: u16 = part.parse().ok().filter(|code| (200..=999).contains(code))?;
            Some((code, code))
        };
        text.split('+')
            .map(|part| one(part.trim()).ok_or_else(wrong))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_classes_may_be_added() {
        let expected: Expected = "2xx+404".parse().unwrap();
        assert_eq!(
            [200, 299, 300, 404, 405].map(|code| expected.has(code)),
            [true, true, false, true, false]
        );
        assert!(Expected::default().has(304) && !Expected::default().has(404));
        for text in ["", "2x", "99", "1xx", "200,404", "abc"] {
            assert!(text.parse::<Expected>().is_err(), "{text}");
        }
    }
}
