//! A table in the columns of a terminal: which columns fit, how wide each is, how a cell is cut.

use textwrap::core::display_width;

use super::order::Sort;

/// On which side of its column a text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// A column of a table of `T`.
pub(super) struct Column<T> {
    pub title: &'static str,
    pub align: Align,
    /// Columns of the terminal that it takes, at least and at most.
    pub width: (usize, usize),
    /// The lower, the sooner it is shown where room is scarce.
    pub rank: u8,
    /// What of a row it shows, in a column of this width.
    pub cell: fn(&T, usize) -> String,
    /// The order that goes by it.
    pub sort: Option<Sort>,
}

/// Between two columns.
const GAP: usize = 1;

/// From this width on the first column is as wide as its content, up to an IPv4 address with a port.
const ROOMY: usize = 70;
const ADDRESS: usize = 21;

/// A column that is shown: its place in the list, where it begins, its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShownColumn {
    pub column: usize,
    pub at: usize,
    pub width: usize,
}

/// The columns that fit in this width, by their ranks. The first is always there.
///
/// `content`: the longest text of each column. Room that is left goes to columns whose content needs
/// it, then to bars.
pub(super) fn fit<T>(columns: &[Column<T>], content: &[usize], width: usize) -> Vec<ShownColumn> {
    let mut ranked: Vec<usize> = (0..columns.len()).collect();
    ranked.sort_by_key(|column| columns[*column].rank);
    let mut shown = Vec::new();
    let mut used = 0;
    let least = |column: usize| {
        if column == 0 && columns[0].width.0 > width {
            return width;
        }
        let (least, most) = columns[column].width;
        // What a row is about matters more than its last figure, where there is room for some figures.
        let whole = if column == 0 && width >= ROOMY { content.first().copied() } else { None };
        whole.map_or(least, |whole| whole.min(ADDRESS).clamp(least, most))
    };
    for column in ranked {
        let least = least(column);
        let gap = if shown.is_empty() { 0 } else { GAP };
        if used + gap + least > width && !shown.is_empty() {
            // A later column that is narrower would change its place with the width: none is shown.
            break;
        }
        used += gap + least;
        shown.push(column);
    }
    shown.sort_unstable();
    let mut spare = width.saturating_sub(used);
    let mut widths: Vec<usize> = shown.iter().map(|column| least(*column)).collect();
    let mut widen = |wanted: &dyn Fn(usize) -> usize| {
        for (column, now) in shown.iter().zip(&mut widths) {
            let (_, most) = columns[*column].width;
            let more = wanted(*column).min(most).saturating_sub(*now).min(spare);
            *now += more;
            spare -= more;
        }
    };
    widen(&|column| content.get(column).copied().unwrap_or(0));
    widen(&|column| if columns[column].title.is_empty() { columns[column].width.1 } else { 0 });
    let mut at = 0;
    let places = shown.iter().zip(widths).map(|(column, width)| {
        let place = ShownColumn { column: *column, at, width };
        at += width + GAP;
        place
    });
    places.collect()
}

/// `text` in at most `width` columns; what is left out of the middle becomes `…`.
pub(super) fn shortened(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let take = |chars: &mut dyn Iterator<Item = char>, room: usize| -> Vec<char> {
        let mut used = 0;
        let fits = |c: &char| {
            used += display_width(c.encode_utf8(&mut [0; 4]));
            used <= room
        };
        chars.take_while(fits).collect()
    };
    let tail = take(&mut text.chars().rev(), room / 2);
    let head = take(&mut text.chars(), room - room / 2);
    head.into_iter().chain(['…']).chain(tail.into_iter().rev()).collect()
}

/// A text in a column of this width.
pub(super) fn aligned(text: &str, align: Align, width: usize) -> String {
    let text = shortened(text, width);
    let blanks = " ".repeat(width.saturating_sub(display_width(&text)));
    match align {
        Align::Left => text + &blanks,
        Align::Right => blanks + &text,
    }
}

/// The longest text of each column among these rows.
pub(super) fn content<T>(columns: &[Column<T>], rows: &[&T]) -> Vec<usize> {
    let longest = |column: &Column<T>| {
        // A bar has no length of its own.
        let wide = if column.title.is_empty() { 0 } else { column.width.1 };
        let cells = rows.iter().map(|row| display_width(&(column.cell)(row, wide)));
        cells.max().unwrap_or(0)
    };
    columns.iter().map(longest).collect()
}
