//! What do pictures of bulk data show? Goodput and latency over a size, beside what limits them; which
//! way of sending is the fastest; the round trip under load; and all of it over time.
//!
//! `lines` gathers the arms over the levels of a size, `limits` what the record says they could reach
//! at most, `over` draws both. Experiments whose arms have sizes for levels share this.

mod beside;
mod heat;
mod limits;
mod lines;
mod over;
mod time;

use tcptoll_core::experiment::figures::{GOODPUT, LATENCY};

use tcptoll_show::own::{Item, Picture, Section};
use tcptoll_show::rounds;
use tcptoll_show::run::Run;

use lines::{Lines, Shown};

/// Options whose levels are sizes in bytes, in the order of their pictures.
const SIZES: [Size; 4] = [
    Size { option: "window", noun: "window", axis: "requested socket buffers", receives: true },
    Size {
        option: "receive-buffer",
        noun: "receive buffer",
        axis: "requested receive buffer",
        receives: true,
    },
    Size {
        option: "send-buffer",
        noun: "send buffer",
        axis: "requested send buffer",
        receives: false,
    },
    Size { option: "message", noun: "message", axis: "message", receives: false },
];

/// An option whose levels are sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    /// Its name.
    option: &'static str,
    /// What has that size.
    noun: &'static str,
    /// What the axis shows.
    axis: &'static str,
    /// Whether it sets the window of the receiver.
    receives: bool,
}

/// Goodput over each size that has levels, then latency over them.
fn over(summary: &Run) -> Vec<Lines<'_>> {
    let shown = [
        Shown { metric: GOODPUT.name, words: "goodput" },
        Shown { metric: "latency_us_p50", words: LATENCY.words },
    ];
    let lines =
        |shown: Shown| SIZES.iter().filter_map(move |size| Lines::new(summary, *size, shown));
    shown.into_iter().flat_map(lines).collect()
}

/// The first of these.
pub(super) fn picture(summary: &Run) -> Option<Picture> {
    over(summary).first().map(over::picture)
}

/// Whether the first of these shows the metric of the run.
pub(super) fn leads(summary: &Run) -> bool {
    let shown = over(summary).first().map(|lines| lines.shown.metric);
    shown.is_some() && shown == rounds::metric(summary)
}

/// The others, and what is compared per arm; `loaded` is the metric of a round trip under load.
pub(super) fn sections(summary: &Run, loaded: Option<&str>) -> Vec<Section> {
    let lines = over(summary);
    let mut goodput = vec![Item::Lead];
    goodput.extend(lines.iter().skip(1).map(|lines| Item::Picture(over::picture(lines))));
    let heat = lines.iter().find_map(heat::picture).map(Item::Picture);
    let beside = loaded.and_then(|loaded| beside::picture(summary, loaded)).map(Item::Picture);
    vec![
        Section { title: "By size", items: goodput },
        Section { title: "Each way of sending, by size", items: heat.into_iter().collect() },
        Section { title: "Goodput and round trip", items: beside.into_iter().collect() },
    ]
}

/// How the arms went over time.
pub(super) fn details(summary: &Run) -> Vec<Section> {
    vec![Section { title: "Over time", items: time::items(summary) }]
}

#[cfg(test)]
mod tests;
