//! What the user looks at: which moment, which rows in which order, which page. Keys change it.

use tcptoll_core::finding::Finding;
use tcptoll_core::units::host_port;
use tcptoll_live::watch::diagnoses::of_destination;
use tcptoll_live::watch::{DestinationState, History, ListenerState, State};

use super::super::table::{self, Sort};
use super::terminal::Key;

/// `PgUp` and `PgDn` go at least this far in time, s.
const PAGE_S: f64 = 30.0;
/// Characters of a filter.
const FILTER_MAX: usize = 64;

/// A part of the screen that has rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Section {
    /// What is wrong.
    #[default]
    Wrong,
    Listeners,
    Destinations,
}

impl Section {
    const ALL: [Self; 3] = [Self::Wrong, Self::Listeners, Self::Destinations];
}

/// A page that covers the sections.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum OverlayPage {
    Help,
    Explained(Box<Finding>),
}

/// What a key asks of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyAction {
    Nothing,
    /// To end the watch.
    Quit,
    /// To end it as SIGINT would: Ctrl-C is a key while the screen is shown.
    Interrupt,
    /// To stop until the shell continues it.
    Suspend,
}

/// A row that is selected: by what it is, so that it stays selected when the order changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Cursor {
    key: String,
    index: usize,
}

impl Cursor {
    /// The place of the selected row among these; of its successor if it is gone.
    pub(super) fn among<'a>(&self, mut keys: impl ExactSizeIterator<Item = &'a String>) -> usize {
        let last = keys.len().saturating_sub(1);
        keys.position(|key| *key == self.key).unwrap_or(self.index.min(last))
    }
}

/// The user's choices.
#[derive(Debug, Default)]
pub(super) struct ScreenState {
    section: Section,
    cursors: [Cursor; 3],
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    pub(super) filter: String,
    /// Whether keys are the filter's.
    pub(super) typing: bool,
    /// The moment that is looked at; none: now.
    pub(super) moment: Option<Box<State>>,
    pub(super) page: Option<OverlayPage>,
    /// The first line of the page that is shown.
    pub(super) scrolled: usize,
    /// Lines of a page that the screen has room for.
    pub(super) page_height: usize,
    /// What the program had to say, until the end.
    pub(super) notice: Option<String>,
    /// A sentence for the last line, until the next key.
    pub(super) message: Option<String>,
}

/// What is shown of a state.
pub(super) struct Rows<'a> {
    pub(super) state: &'a State,
    pub(super) wrong: &'a [Finding],
    pub(super) listeners: Vec<&'a ListenerState>,
    pub(super) destinations: Vec<&'a DestinationState>,
}

impl Rows<'_> {
    /// What each row of a section is, for its whole life.
    pub(super) fn keys(&self, section: Section) -> Vec<String> {
        match section {
            Section::Wrong => {
                self.wrong.iter().map(|one| format!("{} {}", one.id, one.subject)).collect()
            }
            Section::Listeners => self
                .listeners
                .iter()
                .map(|one| format!("{}:{} {}", one.address, one.port, one.inode))
                .collect(),
            Section::Destinations => self
                .destinations
                .iter()
                .map(|one| format!("{}:{}", one.address, one.port))
                .collect(),
        }
    }

    /// What a diagnosis of each row would be about.
    pub(super) fn subjects(&self, section: Section) -> Vec<String> {
        match section {
            Section::Wrong => self.wrong.iter().map(|one| one.subject.clone()).collect(),
            Section::Listeners => {
                self.listeners.iter().map(|one| host_port(&one.address, one.port)).collect()
            }
            Section::Destinations => {
                self.destinations.iter().map(|one| host_port(&one.address, one.port)).collect()
            }
        }
    }

    /// The first diagnosis of a row's subject. A listener and a destination may have the same address.
    pub(super) fn wrong_with(&self, section: Section, subject: &str) -> Option<&Finding> {
        let of_listener = |one: &Finding| one.evidence.contains_key("accept_queue_limit");
        self.wrong.iter().find(|one| {
            one.subject == subject && of_listener(one) == (section == Section::Listeners)
        })
    }

    pub(super) fn count(&self, section: Section) -> usize {
        match section {
            Section::Wrong => self.wrong.len(),
            Section::Listeners => self.listeners.len(),
            Section::Destinations => self.destinations.len(),
        }
    }
}

impl ScreenState {
    /// The state that is looked at; none before the first look.
    pub(super) fn state<'a>(&'a self, history: &'a History) -> Option<&'a State> {
        self.moment.as_deref().or_else(|| history.latest())
    }

    pub(super) fn rows<'a>(&self, state: &'a State) -> Rows<'a> {
        Rows {
            state,
            wrong: &state.diagnoses,
            listeners: table::listeners(state, &self.filter, self.sort, self.reversed),
            destinations: table::destinations(state, &self.filter),
        }
    }

    /// The section whose row is selected: the chosen one, or the first that has rows.
    pub(super) fn section(&self, rows: &Rows<'_>) -> Section {
        let has = |section: &Section| rows.count(*section) > 0;
        let other = Section::ALL.into_iter().find(has);
        if has(&self.section) { self.section } else { other.unwrap_or(self.section) }
    }

    /// The selected row of a section, if it has rows.
    pub(super) fn selected(&self, rows: &Rows<'_>, section: Section) -> Option<usize> {
        let keys = rows.keys(section);
        (!keys.is_empty()).then(|| self.cursors[section as usize].among(keys.iter()))
    }

    /// Does what a key says.
    pub(super) fn press(&mut self, key: Key, history: &History) -> KeyAction {
        self.message = None;
        match key {
            Key::Ctrl('c') => return KeyAction::Interrupt,
            Key::Ctrl('z') => return KeyAction::Suspend,
            _ => {}
        }
        if self.typing {
            self.type_filter(key);
        } else if self.page.is_some() {
            self.turn(key);
        } else {
            return self.choose(key, history);
        }
        KeyAction::Nothing
    }

    fn type_filter(&mut self, key: Key) {
        match key {
            Key::Enter | Key::Tab | Key::Up | Key::Down => self.typing = false,
            Key::Esc => {
                self.filter.clear();
                self.typing = false;
            }
            Key::Backspace => self.typing = self.filter.pop().is_some(),
            Key::Ctrl('u') => self.filter.clear(),
            Key::Char(c) if self.filter.chars().count() < FILTER_MAX => {
                self.filter.push_str(&tcptoll_show::printable_line(c.encode_utf8(&mut [0; 4])));
            }
            _ => {}
        }
    }

    /// On a page. How far it can be scrolled is known when it is drawn.
    fn turn(&mut self, key: Key) {
        // The last line stays visible.
        let page = self.page_height.saturating_sub(1).max(1);
        self.scrolled = match key {
            Key::Down | Key::Char('j') => self.scrolled.saturating_add(1),
            Key::Up | Key::Char('k') => self.scrolled.saturating_sub(1),
            Key::PageDown | Key::Char(' ' | 'f') => self.scrolled.saturating_add(page),
            Key::PageUp | Key::Char('b') => self.scrolled.saturating_sub(page),
            Key::Home | Key::Char('g') => 0,
            Key::End | Key::Char('G') => usize::MAX,
            Key::Esc | Key::Enter | Key::Char('q' | 'e' | 'h' | '?') => {
                self.page = None;
                0
            }
            _ => self.scrolled,
        };
    }

    fn choose(&mut self, key: Key, history: &History) -> KeyAction {
        match key {
            Key::Char('q') => return KeyAction::Quit,
            Key::Char('h' | '?') => self.open(OverlayPage::Help),
            Key::Char('/') => self.typing = true,
            Key::Esc => self.filter.clear(),
            Key::Char('s') => {
                self.sort = self.sort.next();
                self.reversed = false;
                self.message = Some(format!("sorted by {}", self.sort.name()));
            }
            Key::Char('r') => self.reversed = !self.reversed,
            Key::Char(' ') => {
                self.moment = match self.moment {
                    Some(_) => None,
                    None => history.latest().cloned().map(Box::new),
                };
            }
            Key::Left | Key::PageUp | Key::Home => self.earlier(key, history),
            Key::Right | Key::PageDown => self.later(key, history),
            Key::End | Key::Char('0') => self.moment = None,
            _ => self.choose_row(key, history),
        }
        KeyAction::Nothing
    }

    fn open(&mut self, page: OverlayPage) {
        self.page = Some(page);
        self.scrolled = 0;
    }

    /// Goes back in time, as far as it is remembered.
    fn earlier(&mut self, key: Key, history: &History) {
        let Some(at_s) = self.state(history).map(|state| state.at_s) else { return };
        let before = |most_s: f64| history.iter_back().find(move |state| state.at_s <= most_s);
        let one = history.iter_back().find(|state| state.at_s < at_s);
        let oldest = history.iter_back().last();
        let found = match key {
            Key::Home => oldest,
            Key::PageUp => before(at_s - PAGE_S).or(oldest).filter(|state| state.at_s < at_s),
            _ => one,
        };
        match found {
            Some(state) => self.moment = Some(Box::new(state.clone())),
            None => self.message = Some("nothing earlier is remembered".to_owned()),
        }
    }

    /// Goes on in time; at the newest state the screen follows it again.
    fn later(&mut self, key: Key, history: &History) {
        let Some(moment) = &self.moment else { return };
        let from_s = if key == Key::Right { moment.at_s } else { moment.at_s + PAGE_S };
        let newest = history.latest().map_or(0.0, |state| state.at_s);
        // Newest first: the last one that is later is the next.
        let after = history.iter_back().take_while(|state| state.at_s > from_s).last();
        self.moment =
            after.filter(|state| state.at_s < newest).map(|state| Box::new(state.clone()));
    }

    fn choose_row(&mut self, key: Key, history: &History) {
        let Some(state) = self.state(history) else { return };
        let rows = self.rows(state);
        let section = self.section(&rows);
        let at = self.selected(&rows, section).unwrap_or(0);
        let to = match key {
            Key::Down | Key::Char('j') => at + 1,
            Key::Up | Key::Char('k') => at.saturating_sub(1),
            Key::Char('g') => 0,
            Key::Char('G') => usize::MAX,
            Key::Tab => {
                self.section = neighbour(&rows, section, 1);
                return;
            }
            Key::BackTab => {
                self.section = neighbour(&rows, section, Section::ALL.len() - 1);
                return;
            }
            Key::Enter | Key::Char('e') => {
                let found = explained(&rows, section, at).cloned();
                match found {
                    Ok(one) => self.open(OverlayPage::Explained(Box::new(one))),
                    Err(why) => self.message = Some(why),
                }
                return;
            }
            _ => return,
        };
        let keys = rows.keys(section);
        let index = to.min(keys.len().saturating_sub(1));
        let key = keys.into_iter().nth(index).unwrap_or_default();
        self.section = section;
        self.cursors[section as usize] = Cursor { key, index };
    }
}

/// The next section with rows, so many steps on at a time.
fn neighbour(rows: &Rows<'_>, from: Section, step: usize) -> Section {
    let all = Section::ALL.len();
    let others = (1..=all).map(|steps| Section::ALL[(from as usize + steps * step) % all]);
    others.into_iter().find(|section| rows.count(*section) > 0).unwrap_or(from)
}

/// The diagnosis of a row, or why there is none.
fn explained<'a>(rows: &'a Rows<'_>, section: Section, at: usize) -> Result<&'a Finding, String> {
    if section == Section::Wrong {
        return rows.wrong.get(at).ok_or_else(|| "nothing is wrong".to_owned());
    }
    let subjects = rows.subjects(section);
    let subject = subjects.get(at).ok_or("no row is selected")?;
    if section == Section::Destinations
        && let Some(to) = rows.destinations.get(at)
        && let Some(one) = of_destination(rows.state, to)
    {
        return Ok(one);
    }
    rows.wrong_with(section, subject).ok_or_else(|| format!("nothing is wrong with {subject}"))
}
