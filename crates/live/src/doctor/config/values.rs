//! How the values of directives are read: times, sizes, numbers, switches.

use super::ENTRIES_MAX;

/// Characters of a name that is kept.
const NAME_MAX: usize = 256;

/// How the value of a directive is read.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    /// A time; a bare number is in seconds.
    Seconds,
    /// A time; a bare number is in milliseconds.
    Milliseconds,
    Count,
    /// A number with `k`, `m` or `g` behind it.
    Size,
    /// A number; 0 is as if nothing set it.
    Positive,
    /// A size; 0 is as if nothing set it.
    PositiveSize,
    /// `on` or `off`.
    Switch,
    /// The same; or a number, of which 0 is off.
    SwitchOrCount,
    /// `off` or `on`.
    Inverse,
    /// On by its name alone.
    Flag,
    Text,
    Words,
}

/// A value that was read.
#[derive(Clone)]
pub(super) enum Value {
    Seconds(f64),
    Count(u64),
    Is(bool),
    Text(String),
    Words(Vec<String>),
}

impl Unit {
    pub(super) fn value(self, words: &[String]) -> Option<Value> {
        let first = words.first().map_or("", String::as_str);
        Some(match self {
            Self::Seconds => Value::Seconds(seconds(first, 1.0)?),
            Self::Milliseconds => Value::Seconds(seconds(first, 1e-3)?),
            Self::Count => Value::Count(count(first)?),
            Self::Size => Value::Count(size(first)?),
            Self::Positive => Value::Count(count(first).filter(|&count| count > 0)?),
            Self::PositiveSize => Value::Count(size(first).filter(|&size| size > 0)?),
            Self::Switch => Value::Is(switch(first)?),
            Self::SwitchOrCount => Value::Is(switch(first).or_else(|| Some(count(first)? > 0))?),
            Self::Inverse => Value::Is(!switch(first)?),
            Self::Flag => Value::Is(first.is_empty() || switch(first) == Some(true)),
            Self::Text => Value::Text(clipped(first)),
            Self::Words => Value::Words(words.iter().take(ENTRIES_MAX).cloned().collect()),
        })
    }

    /// A value as a file would have it.
    pub(super) fn read<T: Kind>(self, text: &str) -> Option<T> {
        T::of(&self.value(&[text.to_owned()])?)
    }
}

/// A type that values are given as.
pub(super) trait Kind: Sized {
    fn of(value: &Value) -> Option<Self>;
}

macro_rules! kinds {
    ($($kind:ident: $type:ty),*) => { $(impl Kind for $type {
        fn of(value: &Value) -> Option<Self> {
            if let Value::$kind(value) = value { Some(value.clone()) } else { None }
        }
    })* };
}
kinds!(Count: u64, Is: bool, Text: String, Words: Vec<String>);

impl Kind for f64 {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Seconds(value) => Some(*value),
            // A program that takes times in whole seconds alone.
            Value::Count(value) => Some(*value as Self),
            _ => None,
        }
    }
}

/// The first characters of a name: a hostile one may have a million.
pub(super) fn clipped(name: &str) -> String {
    name.chars().take(NAME_MAX).collect()
}

/// A time in seconds: `1m 30s`, `75s`, `100ms`; a bare number has the program's own unit, given in
/// seconds.
pub(super) fn seconds(text: &str, bare: f64) -> Option<f64> {
    let mut total = 0.0;
    let mut rest = text.trim();
    if rest.is_empty() || rest.len() > 64 {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest.get(..digits)?.parse().ok()?;
        rest = rest.get(digits..)?;
        let unit_end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = match rest.get(..unit_end)? {
            "" => bare,
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" | "mi" | "min" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            "w" => 604_800.0,
            "M" => 2_592_000.0,
            "y" => 31_536_000.0,
            _ => return None,
        };
        // 700 ms are 0.7 s, not 0.7000000000000001 s.
        let number = number as f64;
        total += if unit < 1.0 { number / (1.0 / unit).round() } else { number * unit };
        rest = rest.get(unit_end..)?.trim_start();
    }
    Some(total)
}

/// A size in bytes: `8k`, `1m`, `2g`, in either case.
pub(super) fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text.get(..digits)?.parse().ok()?;
    let factor: u64 = match text.get(digits..)?.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        "g" | "gb" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// A number that is not negative.
pub(super) fn count(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// `on` or `off`, in the words of any of the programs.
pub(super) fn switch(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "on" | "yes" | "true" | "1" => Some(true),
        "off" | "no" | "false" | "0" => Some(false),
        _ => None,
    }
}
