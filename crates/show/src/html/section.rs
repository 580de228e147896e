//! What an experiment shows of its own on the page: its sections, ready for the template.

use serde::Serialize;
use tcptoll_core::experiment::column::Form;

use super::arm::{ArmName, name};
use super::picture::Picture;
use super::table::{self, Table};
use crate::columns;
use crate::own;
use crate::run::Run;

/// A section.
#[derive(Serialize)]
pub(super) struct Section {
    title: &'static str,
    items: Vec<Item>,
}

/// A piece of a section.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Item {
    Table { title: &'static str, table: Table },
    Picture { picture: Picture },
    Notes { notes: Vec<Note> },
    Paragraph { text: String },
    Small { text: String },
    Rows { heads: Vec<&'static str>, rows: Vec<Vec<String>>, words: Vec<usize> },
    Details { title: String, small: String, items: Vec<Item> },
    Arms { arms: Vec<OfArm> },
}

#[derive(Serialize)]
struct Note {
    text: String,
    bad: bool,
}

#[derive(Serialize)]
struct OfArm {
    arm: ArmName,
    items: Vec<Item>,
}

/// What sections are made with.
pub(super) struct Maker<'a> {
    pub(super) summary: &'a Run,
    /// The experiment's picture, unless the page begins with it.
    pub(super) lead: Option<Picture>,
}

impl Maker<'_> {
    /// The sections that have anything to show.
    pub(super) fn sections(&self, sections: Vec<own::Section>) -> Vec<Section> {
        let made = sections
            .into_iter()
            .map(|section| Section { title: section.title, items: self.items(section.items) });
        made.filter(|section| !section.items.is_empty()).collect()
    }

    fn items(&self, items: Vec<own::Item>) -> Vec<Item> {
        items.into_iter().filter_map(|item| self.item(item)).collect()
    }

    fn item(&self, item: own::Item) -> Option<Item> {
        Some(match item {
            own::Item::Table(title, id) => {
                let table = columns::table(self.summary, Form::Page, id)?;
                let table = table::fill(self.summary, &table);
                (!table.is_empty()).then_some(Item::Table { title, table })?
            }
            own::Item::Lead => Item::Picture { picture: self.lead.clone()? },
            own::Item::Picture(picture) => {
                Item::Picture { picture: Picture::from_own(picture, self.summary) }
            }
            own::Item::Notes(notes) => {
                let note = |note: own::Note| Note { text: note.text, bad: note.bad };
                let notes: Vec<Note> = notes.into_iter().map(note).collect();
                (!notes.is_empty()).then_some(Item::Notes { notes })?
            }
            own::Item::Paragraph(text) => Item::Paragraph { text },
            own::Item::Small(text) => Item::Small { text },
            own::Item::Rows(heads, rows, words) => Item::Rows { heads, rows, words },
            own::Item::Details(title, small, items) => {
                let items = self.items(items);
                (!items.is_empty()).then_some(Item::Details { title, small, items })?
            }
            own::Item::Arms(arms) => {
                let items_of_arm = |(at, items): (usize, Vec<own::Item>)| {
                    let arm = name(at, self.summary.arms.get(at)?);
                    Some(OfArm { arm, items: self.items(items) })
                };
                Item::Arms { arms: arms.into_iter().filter_map(items_of_arm).collect() }
            }
        })
    }
}
