//! What does a page draw of a run, and what does it begin with?

use tcptoll_core::record::Comparison;
use tcptoll_core::sheet::Part;

use super::{distribution, forest, levels, rounds as in_order};
use crate::figures::{self, Primary};
use crate::run::{Picture, Run};
use crate::svg::{Svg, arm_class};
use crate::{points, rounds};

/// The picture that the page begins with: of a run in rounds one of the metric that it is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum First {
    Ratios,
    Forests,
    Levels,
    Rounds,
    Own,
    #[default]
    Distribution,
}

/// A picture under a heading of its own, which may be empty.
pub(crate) type Titled = (String, Picture);

fn all(list: &[Titled]) -> Vec<(&str, &Picture)> {
    list.iter().map(|(title, picture)| (title.as_str(), picture)).collect()
}

fn one(picture: Option<&Picture>) -> Vec<(&str, &Picture)> {
    picture.into_iter().map(|picture| ("", picture)).collect()
}

/// What a page draws of a run.
#[derive(Default)]
pub(crate) struct Drawn {
    pub first: First,
    pub ratios: Vec<Titled>,
    pub forests: Vec<Titled>,
    pub over_levels: Option<Titled>,
    pub in_order: Option<Picture>,
    pub own: Option<Picture>,
    pub distribution: Option<Picture>,
}

impl Drawn {
    pub(crate) fn new(run: &Run, primary: &Primary) -> Self {
        let titled = |title: String, svg: Svg, caption: &str| (title, Picture::new(svg, caption));
        let level = |one: levels::OverLevels| titled(one.title, one.svg, &one.caption);
        let leads = (run.own.leads)(run);
        let over_levels = levels::of_metric(run).filter(|_| !leads).map(level);
        let ratios: Vec<Titled> = levels::of_ratio(run).into_iter().map(level).collect();
        let forests = forest::pictures(run).into_iter();
        let forests: Vec<Titled> =
            forests.map(|one| titled(one.title, one.svg, &one.caption)).collect();
        let in_order = in_order::picture(run)
            .map(|svg| Picture::new(svg, &in_order::caption(run)))
            .map(|picture| picture.of_arms(run, |_, arm| !arm.rounds.is_empty()));
        let metric = rounds::metric(run);
        let with_interval = |c: &Comparison| c.ci95.is_some() && metric == Some(c.metric.as_str());
        let drawn = run.comparisons.iter().any(with_interval);
        let own = (run.own.picture)(run);
        let first = if points::are_units(run) && !forests.is_empty() {
            First::Forests
        } else if (run.rounds.is_none() || leads) && own.is_some() {
            First::Own
        } else if run.rounds.is_none() {
            First::Distribution
        } else if over_levels.is_some() {
            // The figure itself answers; how sure a ratio is stands with the comparisons.
            First::Levels
        } else if drawn && !ratios.is_empty() {
            First::Ratios
        } else if drawn && !forests.is_empty() {
            First::Forests
        } else if in_order.is_some() {
            First::Rounds
        } else {
            First::Distribution
        };
        let distribution = distribution::picture(run, primary)
            .map(|svg| Picture::new(svg, &distribution::caption(run, primary)))
            .map(|picture| picture.of_arms(run, |_, arm| distribution::is_drawn(arm, primary)));
        Self { first, ratios, forests, over_levels, in_order, own, distribution }
    }

    /// What the page begins with.
    pub(crate) fn lead(&self) -> Vec<(&str, &Picture)> {
        match self.first {
            First::Ratios => all(&self.ratios),
            First::Forests => all(&self.forests),
            First::Levels => all(self.over_levels.as_slice()),
            First::Rounds => one(self.in_order.as_ref()),
            First::Own => one(self.own.as_ref()),
            First::Distribution => one(self.distribution.as_ref()),
        }
    }
}

/// The picture that the page begins with, and its heading.
pub(super) fn lead(run: &Run) -> Option<(String, Picture)> {
    let drawn = Drawn::new(run, &figures::primary(run));
    let (title, picture) = drawn.lead().into_iter().next()?;
    let title = if title.is_empty() { &run.question } else { title };
    Some((title.to_owned(), picture.clone()))
}

/// What stands below the picture of each arm: the first is open, others are folded.
pub fn of_arms(run: &Run, arms: Vec<(usize, Vec<Part>)>) -> Vec<Part> {
    let mut all = Vec::new();
    for (at, parts) in arms {
        let Some(arm) = run.arms.get(at) else { continue };
        let (class, name) = (arm_class(at), arm.name.clone());
        if !all.is_empty() {
            all.push(Part::Folded { title: name, small: String::new(), class, parts });
            continue;
        }
        if run.arms.len() > 1 {
            all.push(Part::Title { text: name, class });
        }
        all.extend(parts);
    }
    all
}
