//! `--dry-run`: what a search would do, and how long it would take.

use super::TuneRequest;
use super::load::Load;
use crate::cli::TuneStrategy;

/// What would be done, without doing it.
pub(super) fn plan(asked: &TuneRequest<'_>, load: &Load) -> String {
    let number = |name: &str| load.time_s(name).unwrap_or_default();
    let trial_s = number("warmup") + number("duration") + 1.5;
    let mut text = format!("server    {}\n", asked.server.name());
    if let Some(why) = &asked.server_why {
        text += &format!("          {why}\n");
    }
    text += "load";
    for (at, (name, value)) in load.texts().iter().enumerate() {
        let label = if at == 0 { "      " } else { "          " };
        text += &format!("{label}{name} {value}\n");
    }
    if let Some(traffic) = &load.traffic {
        text += &format!(
            "log       {} visits with {} pages in {:.0} s; the busiest minute has {:.3} visitors per second\n",
            traffic.visits, traffic.pages, traffic.span_s, traffic.rate_per_s_busiest
        );
    }
    let trials = match asked.args.strategy {
        TuneStrategy::Search => 20.0,
        TuneStrategy::Vps2016 | TuneStrategy::Dedicated2016 => 5.0,
    };
    text += &format!(
        "search    about {trials:.0} trials, {trial_s:.0} s each with the start of the server: {:.0} min\n",
        (trials * trial_s / 60.0).ceil()
    );
    text += &if asked.compare_time.is_zero() {
        "compared  with nothing (--compare-time 0s)\n".to_owned()
    } else {
        format!("compared  at most {}\n", asked.args.compare_time)
    };
    for doubt in &load.doubts {
        text += &format!("unknown   {doubt}\n");
    }
    text
}
