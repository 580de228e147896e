//! What a part of a configuration sets, read as the table of [directives](super::directives) says.

use std::collections::BTreeMap;

use super::directives::{Field, Level, named};
use super::values::{Kind, Value};
use super::{Buffers, ConfigPosition, Program, Sourced};

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
