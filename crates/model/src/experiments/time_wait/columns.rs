//! Which figures stand in the tables of `time-wait`.

use super::super::column::{Column, Figure, Form, Quantile, Show, Table};
use super::super::columns::{ERRORS, OK, every};
use super::{CONNECT_CPU_MEAN, IDLE_SHARE};
use crate::experiments::column::value;

const CPU: Column =
    Column::whole("connect CPU", (CONNECT_CPU_MEAN.name, "us"), Figure::Estimate("us"));
const IDLE: Column = Column::new(
    ("", "idle"),
    "client CPU idle",
    (IDLE_SHARE.name, IDLE_SHARE.unit),
    Figure::Share(|arm| value(arm, IDLE_SHARE.name)),
);

/// The tables, in the order of every report.
pub(super) const TABLES: &[Table] = &[Table {
    id: "figures",
    title: "",
    forms: &[Form::Text, Form::Page],
    has: every,
    parts: &[&[Column::answer(Quantile::P50).shown(Show::Always), CPU, IDLE, OK, ERRORS]],
}];
