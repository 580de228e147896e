//! What does the page show of checking idle connections? Tables of cost and of deaths, the trade
//! between the two with its picture, and what no column can say.

use serde::Serialize;
use tcptoll_model::record::{Arm, Summary};

use super::curve;
use super::table::{self, Table};
use crate::keepalive::{self, Column, Note, Trade};
use crate::{figures, number};

/// Everything about checking.
#[derive(Serialize)]
pub(super) struct View {
    traffic: Table,
    hourly: Option<Table>,
    more: Option<Table>,
    /// Whether the CPU of the machine is among the costs.
    machine: bool,
    cost: Option<Table>,
    to_set: Vec<[String; 4]>,
    deaths: Option<Table>,
    spent: Option<Table>,
    notes: Vec<Said>,
    trade: Option<Table>,
    basis: Option<String>,
    computed: Vec<[String; 4]>,
}

#[derive(Serialize)]
struct Said {
    text: String,
    bad: bool,
}

impl From<Note> for Said {
    fn from(note: Note) -> Self {
        Self { text: note.text, bad: note.bad }
    }
}

/// What the page shows; `None` where nothing was checked.
pub(super) fn of(summary: &Summary) -> Option<View> {
    if !keepalive::any(summary) {
        return None;
    }
    let all = |columns: &[Column]| table::of_columns(summary, columns, &|_, _| true);
    let died = |columns: &[Column]| {
        let died = |_: usize, arm: &Arm| keepalive::deaths(arm).is_some();
        Some(table::of_columns(summary, columns, &died)).filter(|table| !table.is_empty())
    };
    let filled = |table: Table| Some(table).filter(|table| !table.is_empty());
    // Tables that fit a page rather than one that has to be moved about.
    let mut traffic = keepalive::traffic_columns();
    let hourly = traffic.split_off(COUNTED).concat();
    let mut deaths = keepalive::death_columns();
    let mut spent = deaths.split_off(KNOWN).concat();
    spent.extend(keepalive::more_deaths());
    let trade = keepalive::trade(summary);
    let traded = |at: usize, arm: &Arm| keepalive::traded(&(at, arm));
    Some(View {
        traffic: all(&traffic.concat()),
        hourly: filled(all(&hourly)),
        machine: keepalive::machine(summary),
        more: filled(all(&keepalive::more_traffic())),
        cost: filled(all(&keepalive::cost_columns().concat())),
        to_set: keepalive::to_set(&summary.arms),
        deaths: died(&deaths.concat()),
        spent: died(&spent),
        notes: keepalive::notes(&summary.arms).into_iter().map(Said::from).collect(),
        trade: trade
            .as_ref()
            .map(|_| table::of_columns(summary, &keepalive::trade_columns(), &traded)),
        computed: trade.as_ref().map(computed).unwrap_or_default(),
        basis: trade.and_then(|trade| trade.basis()).map(|basis| figures::capital(&basis) + "."),
    })
}

/// Parts of the columns of traffic that say what was counted; the others, what that is in an hour.
const COUNTED: usize = 4;

/// Parts of the columns of deaths that say what was known; the others, what that took.
const KNOWN: usize = 4;

/// What the lines of the picture say: mechanism, known after, packets per hour, the setting.
fn computed(trade: &Trade<'_>) -> Vec<[String; 4]> {
    let of = |curve: &keepalive::Curve| {
        let mechanism = curve.mechanism;
        let row = move |p: &tcptoll_model::checking::Point| {
            [
                mechanism.name().to_owned(),
                number::time(p.detect_s * 1e6),
                number::three(p.packets_per_hour),
                keepalive::setting(&p.checking),
            ]
        };
        curve.points.iter().map(row).collect::<Vec<_>>()
    };
    trade.curves.iter().flat_map(of).collect()
}

/// The picture of the trade, its caption, and the places of the arms in it.
pub(super) fn picture(summary: &Summary) -> Option<(String, String, Vec<usize>)> {
    let trade = keepalive::trade(summary)?;
    let drawn = trade.drawn.iter().map(|arm| arm.at).collect();
    Some((curve::picture(&trade)?, curve::caption(&trade), drawn))
}
