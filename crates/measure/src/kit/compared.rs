//! The first sentences of an answer where arms were compared: the figures of the arms in the unit of the
//! question, then what is not known yet. Ratios and intervals stand in the table of comparisons.
//!
//! Figures are those of the arms' metrics, means over the rounds that count, as in that table.

use tcptoll_core::experiment::spec::{Better, Phrase, Spec, Specs};
use tcptoll_core::number;
use tcptoll_core::record::{Arm, Comparison, Summary, Verdict};
use tcptoll_core::stats::sequence;
use tcptoll_core::units::{capital, plural};
use tcptoll_core::verdict::consolidate;
use tcptoll_core::verdict::names::Names;
use tcptoll_show::effect;

use super::conclusion::{STATED, enumerated, failed};

/// From this time on, s, no number of rounds is advised.
const PATIENCE_S: f64 = 600.0;

/// The level of a comparison that stands alone.
const ALPHA_OF_ONE: f64 = 0.05;

/// Below this ratio a difference is a percentage.
const TIMES: f64 = 1.1;

/// What the comparisons of a run say: one sentence with the figures, and one of what is open, if anything is.
/// Empty: nothing was compared, or no two arms have the figure.
pub(crate) fn headline(summary: &Summary, spec: &Spec) -> Vec<String> {
    Compared::primary(summary, spec).map(|compared| compared.sentences()).unwrap_or_default()
}

/// The figures of all arms in a metric, compared or not: `Opening a connection takes 34.1 µs (loopback) and
/// 1.80 ms (metro)`.
///
/// None: fewer than two arms have it.
pub(crate) fn figures(summary: &Summary, spec: &Spec, metric: &str) -> Option<String> {
    let has = |arm: &&Arm| arm.attempts > 0 && consolidate::value(arm, metric).is_some();
    let arms = summary.arms.iter().filter(has);
    let arms: Vec<&Arm> = arms.collect();
    let compared = Compared {
        summary,
        names: Names::new(&summary.arms),
        phrase: phrase(spec, metric),
        better: better(spec, metric),
        words: words(spec, metric),
        metric,
        all: Vec::new(),
        arms,
    };
    (compared.arms.len() > 1).then(|| compared.figures(None) + ".")
}

/// Operations that failed, with the arms they failed in: never a success, so it comes first.
///
/// None: none failed, but for those that a signal stopped.
pub(crate) fn failures(summary: &Summary, spec: &Spec) -> Option<String> {
    let names = Names::new(&summary.arms);
    let mut failed: Vec<(&Arm, u64)> = summary
        .arms
        .iter()
        .map(|arm| (arm, failed(arm)))
        .filter(|(_, failed)| *failed > 0)
        .collect();
    let share = |(arm, failed): &(&Arm, u64)| *failed as f64 / arm.attempts.max(1) as f64;
    failed.sort_by(|a, b| share(b).total_cmp(&share(a)));
    let (worst, count) = failed.first()?;
    let what = spec.operation.many;
    let of = |arm: &Arm, count: u64| {
        format!("{} of {}", number::count(count), number::count(arm.attempts))
    };
    let first = format!("{} {what} failed", of(worst, *count));
    Some(match failed.as_slice() {
        _ if summary.arms.len() == 1 => match frequent(worst) {
            Some(class) => format!("{first} ({class})."),
            None => first + ".",
        },
        [_] => format!("{first} {}.", names.beside(worst)),
        [_, (other, count)] => {
            format!(
                "{first} {} and {} {}.",
                names.beside(worst),
                of(other, *count),
                names.beside(other)
            )
        }
        all => {
            format!("{first} {}, and some in {} other arms.", names.beside(worst), all.len() - 1)
        }
    })
}

/// The most frequent class of errors; of responses with their status.
fn frequent(arm: &Arm) -> Option<String> {
    let all = arm.errors.iter().filter(|(class, _)| *class != "interrupted");
    let (class, _) = all.max_by_key(|(_, count)| **count)?;
    let statuses = arm.statuses.iter().filter(|(status, _)| status.starts_with(['4', '5']));
    let status = statuses.max_by_key(|(_, count)| **count).filter(|_| class == "status");
    Some(status.map_or_else(|| class.clone(), |(status, _)| format!("status {status}")))
}

fn phrase(spec: &Spec, metric: &str) -> Option<Phrase> {
    spec.phrases.iter().copied().find(|phrase| phrase.metric == metric)
}

fn words(spec: &Spec, metric: &str) -> String {
    let known = spec.metrics.iter().find(|known| known.name == metric);
    known.map_or_else(|| Specs(&[]).words_of_metric(metric), |known| known.words.to_owned())
}

fn better(spec: &Spec, metric: &str) -> Better {
    let quantile_of =
        |name: &str| metric.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'));
    let single = spec.metrics.iter().find(|known| known.name == metric).map(|known| known.better);
    let of_histogram =
        || Some(spec.histograms.iter().find(|known| quantile_of(known.name))?.better);
    single.or_else(of_histogram).unwrap_or(Better::Neither)
}

/// The comparisons of the metric that the run is about.
struct Compared<'a> {
    summary: &'a Summary,
    names: Names<'a>,
    phrase: Option<Phrase>,
    better: Better,
    /// The metric in words.
    words: String,
    metric: &'a str,
    all: Vec<&'a Comparison>,
    /// Those compared that have the figure, in the order of the run.
    arms: Vec<&'a Arm>,
}

impl<'a> Compared<'a> {
    fn primary(summary: &'a Summary, spec: &Spec) -> Option<Self> {
        let of_primary = |c: &&Comparison| Some(&c.metric) == summary.primary_metric.as_ref();
        let first = summary.comparisons.iter().find(of_primary).or(summary.comparisons.first())?;
        let metric = first.metric.as_str();
        let all: Vec<&Comparison> =
            summary.comparisons.iter().filter(|c| c.metric == metric).collect();
        let is_compared = |arm: &&Arm| all.iter().any(|c| c.a == arm.name || c.b == arm.name);
        let has = |arm: &&Arm| arm.attempts > 0 && consolidate::value(arm, metric).is_some();
        let arms: Vec<&Arm> = summary.arms.iter().filter(is_compared).filter(has).collect();
        let (better, words) = (better(spec, metric), words(spec, metric));
        let names = Names::new(&summary.arms);
        let phrase = phrase(spec, metric);
        let compared = Self { summary, names, phrase, better, words, metric, all, arms };
        (compared.arms.len() > 1).then_some(compared)
    }

    fn sentences(&self) -> Vec<String> {
        let open: Vec<&Comparison> =
            self.all.iter().copied().filter(|c| c.verdict == Verdict::NotEnough).collect();
        // Said in the same sentence: what there is must not be taken for a verdict.
        let few = open.first().filter(|_| open.iter().all(|c| c.ci95.is_none()));
        let few =
            few.and_then(|one| too_few(one)).map_or_else(String::new, |few| format!("; {few}"));
        let [one] = self.all.as_slice() else {
            let figures = format!("{}{few}.", self.figures(self.base()));
            let open = if few.is_empty() { self.open(&open) } else { None };
            return std::iter::once(figures).chain(open).collect();
        };
        match (one.verdict, one.ci95) {
            (Verdict::NoDifference, _) => vec![format!(
                "No difference above {} was found: {}.",
                number::percent(one.margin),
                self.both(&self.arms)
            )],
            (Verdict::NotEnough, Some(ci95)) => {
                let a = self.arms.iter().copied().filter(|arm| arm.name == one.a);
                let b = self.arms.iter().copied().filter(|arm| arm.name == one.b);
                let figures = self.both(&a.chain(b).collect::<Vec<_>>());
                let not_told = format!("Not told yet: {} ({figures}).", self.may_be(one, ci95));
                [Some(not_told), self.enough(&self.all)].into_iter().flatten().collect()
            }
            (Verdict::NotEnough, None) => vec![format!("{}{few}.", self.figures(None))],
            (Verdict::Higher | Verdict::Lower, _) => {
                vec![self.more(one).unwrap_or_else(|| self.figures(None)) + "."]
            }
        }
    }

    /// The arm that all others are compared with.
    fn base(&self) -> Option<&'a Arm> {
        let first = &self.all.first()?.b;
        let same = self.all.iter().all(|c| c.b == *first);
        self.arms.iter().copied().find(|arm| same && arm.name == *first)
    }

    fn value(&self, arm: &Arm) -> f64 {
        consolidate::value(arm, self.metric).unwrap_or_default()
    }

    /// The sentence with the figures of all arms; of many, the best, the worst, and the base.
    fn figures(&self, base: Option<&Arm>) -> String {
        let around = self.phrase.map_or("", |phrase| phrase.all);
        let list = if self.arms.len() > STATED { self.ends(base) } else { self.listed(&self.arms) };
        if around.is_empty() {
            return format!("{}: {list}", capital(&self.words));
        }
        around.replace("{}", &list)
    }

    fn ends(&self, base: Option<&Arm>) -> String {
        let mut arms = self.arms.clone();
        arms.sort_by(|a, b| self.value(a).total_cmp(&self.value(b)));
        if self.better == Better::Higher {
            arms.reverse();
        }
        let [best, .., worst] = arms.as_slice() else { return self.listed(&arms) };
        let mut shown = vec![*best, *worst];
        let base = base.filter(|base| shown.iter().all(|arm| arm.name != base.name));
        shown.extend(arms.iter().find(|arm| base.is_some_and(|base| base.name == arm.name)));
        let mut each = self.each(&shown);
        if let Some(base) = (shown.len() > 2).then(|| each.pop()).flatten() {
            return format!(
                "{} at best, {} at worst, and {base} to compare with",
                each[0], each[1]
            );
        }
        format!("{} at best and {} at worst", each[0], each[1])
    }

    /// `4,610 and 4,600 requests/s`.
    fn both(&self, arms: &[&Arm]) -> String {
        let unit = self.phrase.map_or("", |phrase| phrase.unit);
        let mut figures = self.written(arms);
        if let (false, Some(first)) = (unit.is_empty(), figures.first_mut()) {
            *first = bare(first, unit);
            figures.iter_mut().skip(1).for_each(|figure| *figure = format!("{figure} {unit}"));
        }
        enumerated(&figures)
    }

    fn listed(&self, arms: &[&Arm]) -> String {
        enumerated(&self.each(arms))
    }

    /// `12,400 requests/s (A)`, `4,600 (B)`.
    fn each(&self, arms: &[&Arm]) -> Vec<String> {
        let values = self.written(arms);
        let named = values.into_iter().zip(arms);
        named.map(|(value, arm)| format!("{value} ({})", self.names.arm(arm))).collect()
    }

    /// The figures of arms: with more digits where a difference was found and three show none.
    fn written(&self, arms: &[&Arm]) -> Vec<String> {
        let unit =
            arms.iter().find_map(|arm| consolidate::unit(arm, self.metric)).unwrap_or_default();
        let written = |digits: fn(f64, &str) -> String| -> Vec<String> {
            let shown = |arm: &&Arm| {
                let value = self.value(arm);
                let sign = consolidate::sign(arm, self.metric, value);
                format!("{sign}{}", digits(value, &unit))
            };
            arms.iter().map(shown).collect()
        };
        let mut all = written(number::metric);
        let decided =
            self.all.iter().any(|c| matches!(c.verdict, Verdict::Higher | Verdict::Lower));
        if decided && unit == "us" && all.windows(2).any(|pair| pair[0] == pair[1]) {
            all = written(|us, _| number::exact_time(us));
        }
        let words = self.phrase.map_or("", |phrase| phrase.unit);
        if !words.is_empty() {
            for (at, text) in all.iter_mut().enumerate() {
                let bare = text.trim_end_matches("/s").to_owned();
                *text = if at == 0 { format!("{bare} {words}") } else { bare };
            }
        }
        all
    }

    /// `B answers 2.7 times as many requests/s as A (12,400 and 4,600)`; of a small difference `3.4 % more`.
    fn more(&self, one: &Comparison) -> Option<String> {
        let phrase = self.phrase.filter(|phrase| !phrase.more.is_empty())?;
        let ratio = one.ratio.filter(|ratio| *ratio > 0.0 && ratio.is_finite())?;
        let (greater, lesser, ratio) =
            if ratio < 1.0 { (&one.b, &one.a, 1.0 / ratio) } else { (&one.a, &one.b, ratio) };
        let arm = |name: &str| self.arms.iter().copied().find(|arm| arm.name == name);
        let [of_greater, of_lesser] = [arm(greater)?, arm(lesser)?];
        // The means of rounds may tell another story than the ratio of their logarithms: then both are stated.
        let of_means = self.value(of_greater) / self.value(of_lesser);
        if !of_means.is_finite()
            || number::significant(of_means, 2) != number::significant(ratio, 2)
        {
            return None;
        }
        let figures = self.written(&[of_greater, of_lesser]);
        let figures: Vec<String> = figures.iter().map(|text| bare(text, phrase.unit)).collect();
        let greater = capital_of(&self.names.subject(greater));
        let lesser = self.names.subject(lesser);
        let does = if ratio < TIMES {
            let more = format!("{} more", percent(ratio - 1.0));
            phrase
                .more
                .replace("{} as many", &more)
                .replace("{} as much", &more)
                .replace(" as", " than")
        } else {
            let times =
                if ratio < 9.95 { number::significant(ratio, 2) } else { number::fixed(ratio, 0) };
            phrase.more.replace("{}", &format!("{times} times"))
        };
        Some(format!("{greater} {does} {lesser} ({} and {})", figures[0], figures[1]))
    }

    /// `B may take between 3 % less and 9 % more time than A`.
    fn may_be(&self, one: &Comparison, [low, high]: [f64; 2]) -> String {
        let (a, b) = (self.names.subject(&one.a), self.names.subject(&one.b));
        let metric = &self.words;
        let is_time = self.metric.contains("_us");
        if high > 2.0 || low < 0.5 {
            let [low, high] = [low, high].map(|ratio| number::significant(ratio, 2));
            let times = format!("between {low} and {high} times");
            return match self.better {
                Better::Lower if is_time => format!("{a} may take {times} as long as {b}"),
                Better::Higher if self.metric.ends_with("_per_s") => {
                    format!("{a} may be {times} as fast as {b}")
                }
                _ => format!("the {metric} of {a} may be {times} that of {b}"),
            };
        }
        let [less, more] = match self.better {
            Better::Lower if is_time => ["less", "more"],
            Better::Higher if self.metric.ends_with("_per_s") => ["slower", "faster"],
            _ => ["lower", "higher"],
        };
        let side = |ratio: f64| {
            let word = if ratio < 1.0 { less } else { more };
            format!("{} {word}", percent((ratio - 1.0).abs()))
        };
        let between = format!("between {} and {}", side(low), side(high));
        match less {
            "less" => format!("{a} may take {between} time than {b}"),
            "slower" => format!("{a} may be {between} than {b}"),
            _ => format!("the {metric} of {a} may be {between} than of {b}"),
        }
    }

    /// Of several comparisons, those without a verdict or without a difference.
    fn open(&self, open: &[&Comparison]) -> Option<String> {
        if !open.is_empty() {
            let enough = self.enough(open).map_or_else(String::new, |text| format!(" {text}"));
            return Some(if open.len() == self.all.len() {
                format!("None of these differences is certain yet.{enough}")
            } else {
                format!("Not told yet: {}.{enough}", self.pairs(open))
            });
        }
        let same: Vec<&Comparison> =
            self.all.iter().copied().filter(|c| c.verdict == Verdict::NoDifference).collect();
        let margin = number::percent(same.first()?.margin);
        Some(if same.len() == self.all.len() {
            format!("No difference above {margin} was found.")
        } else {
            format!("No difference above {margin} was found for {}.", self.pairs(&same))
        })
    }

    /// `A and B, relative to C`.
    fn pairs(&self, these: &[&Comparison]) -> String {
        let base = self.base().map(|base| self.names.subject(&base.name));
        let each: Vec<String> = these
            .iter()
            .map(|c| match &base {
                Some(_) => self.names.subject(&c.a),
                None => format!("{} and {}", self.names.subject(&c.a), self.names.subject(&c.b)),
            })
            .collect();
        let each = match each.len() {
            0..=STATED => enumerated(&each),
            count => format!("{count} of {} comparisons", self.all.len()),
        };
        base.map_or_else(|| each.clone(), |base| format!("{each}, compared with {base}"))
    }

    /// What would tell, if that takes no more than ten minutes.
    fn enough(&self, open: &[&Comparison]) -> Option<String> {
        if open.iter().any(|c| c.points.is_some()) {
            return None;
        }
        let needed = open.iter().filter_map(|c| effect::rounds_needed(c)).max()?;
        let rounds = self.summary.rounds.as_ref().filter(|rounds| rounds.done > 0)?;
        let takes_s = needed as f64 * rounds.elapsed_s / f64::from(rounds.done);
        let margin = number::percent(open.first()?.margin);
        Some(if needed > effect::MOST_ROUNDS || takes_s > PATIENCE_S {
            format!("This machine is too noisy for a margin of {margin}.")
        } else {
            format!(
                "On this machine {margin} would take about {}: --rounds {needed}.",
                about(takes_s)
            )
        })
    }
}

/// Why there is no verdict, where there is not even an interval: a clause. None: of points more is said elsewhere.
fn too_few(one: &Comparison) -> Option<String> {
    if one.points.is_some() {
        return None;
    }
    let needed = sequence::fewest(if one.alpha > 0.0 { one.alpha } else { ALPHA_OF_ONE });
    Some(match one.ratio {
        _ if one.rounds == 0 => {
            "there is no verdict, because no round counts for both arms".to_owned()
        }
        None => "there is no verdict, because a figure is missing or not above 0".to_owned(),
        Some(_) if one.rounds as usize >= needed => {
            "there is no verdict, because the figure is missing in some rounds".to_owned()
        }
        Some(_) => {
            let is = if one.rounds == 1 { "is" } else { "are" };
            format!("{} {is} too few for a verdict", plural(u64::from(one.rounds), "round"))
        }
    })
}

/// A figure without its unit in words.
fn bare(figure: &str, unit: &str) -> String {
    figure.replace(unit, "").trim_end().to_owned()
}

/// A time without false precision: `40 s`, `4 min`.
fn about(seconds: f64) -> String {
    if seconds < 100.0 {
        format!("{} s", (seconds / 10.0).ceil().max(1.0) * 10.0)
    } else {
        format!("{} min", (seconds / 60.0).ceil())
    }
}

/// `3 %`, `0.4 %`: a distance from 1 with the digits that a table shows of the ratio.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let decimals = usize::from(percent < 9.95);
    let text = number::fixed(percent, decimals);
    format!("{} %", text.strip_suffix(".0").unwrap_or(&text))
}

/// The first letter as a capital, unless the word is a name that is written as it is: `127.0.0.1`, `h2`.
fn capital_of(name: &str) -> String {
    let first: &str = name.split([' ', ',']).next().unwrap_or_default();
    let is_word = first.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    if is_word { capital(name) } else { name.to_owned() }
}

#[cfg(test)]
#[path = "compared_tests.rs"]
mod tests;
