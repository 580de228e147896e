//! What a part of a configuration sets, read as the table of [directives](super::directives) says.

use std::collections::BTreeMap;

use super::directives::{Field, Level, named};
use super::reading::{clipped, count, seconds, size, switch};
use super::{Buffers, ConfigPosition, ENTRIES_MAX, Program, Sourced};

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

/// What a section of a configuration sets or inherits.
#[derive(Clone)]
pub(super) struct Settings {
    program: Program,
    set: BTreeMap<Field, Sourced<Value>>,
}

impl Settings {
    pub(super) fn new(program: Program) -> Self {
        Self { program, set: BTreeMap::new() }
    }

    /// Takes a directive that the table has.
    pub(super) fn set(&mut self, level: Level, name: &str, words: &[String], at: &ConfigPosition) {
        let Some(row) = named(self.program, level, name) else { return };
        match row.unit.value(words) {
            Some(value) => drop(self.set.insert(row.field, Sourced { value, at: at.clone() })),
            // These refuse such a value, so the file is not what they run with.
            None if matches!(self.program, Program::Nginx | Program::Redis) => {}
            None => self.remove(row.field),
        }
    }

    /// Takes parameters: `name=value`.
    pub(super) fn parameters(&mut self, level: Level, words: &[String], at: &ConfigPosition) {
        for (name, value) in words.iter().filter_map(|word| word.split_once('=')) {
            self.set(level, &name.to_ascii_lowercase(), &[value.to_owned()], at);
        }
    }

    /// Takes options: `name value`. Of one that stands twice, the first.
    pub(super) fn options(&mut self, level: Level, words: &[String], at: &ConfigPosition) {
        for (index, name) in words.iter().enumerate().rev() {
            self.set(level, name, words.get(index + 1..).unwrap_or_default(), at);
        }
    }

    pub(super) fn remove(&mut self, field: Field) {
        self.set.remove(&field);
    }

    pub(super) fn get<T: Kind>(&self, field: Field) -> Option<Sourced<T>> {
        let one = self.set.get(&field)?;
        Some(Sourced { value: T::of(&one.value)?, at: one.at.clone() })
    }

    /// A value without its place.
    pub(super) fn plain<T: Kind>(&self, field: Field) -> Option<T> {
        T::of(&self.set.get(&field)?.value)
    }

    /// Socket buffers, if it sets any.
    pub(super) fn buffers(&self) -> Option<Buffers> {
        let (receive, send) = (self.get(Field::Receive), self.get(Field::Send));
        Some(Buffers { receive, send }).filter(|one| one.receive.is_some() || one.send.is_some())
    }
}
