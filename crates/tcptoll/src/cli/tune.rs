//! Which words does `tune` take? The options of the load are those of the experiment that it measures with.
#![allow(clippy::doc_markdown)] // the doc comments are the help text, which has no back quotes

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::error::Error;
use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use tcptoll_core::experiment::option::{Levels, Opt};
use tcptoll_core::experiment::spec::Spec;
use tcptoll_core::study::Study;
use tcptoll_measure::experiments;

use super::Format;
use super::experiment::{Typed, argument, typed};

const TUNE_AFTER: &str = "\
Examples:
  tcptoll tune apache --mpm prefork --memory 512M --worker-memory 20M --rate 1 --pages 2
      a server with 512 MB of memory whose workers use 20 MB each
  tcptoll tune apache-prefork --study vps-2016
      use the visitors of a study, and compare with its settings
  tcptoll tune nginx --url http://localhost/     use a copy of this page, served in the lab
  tcptoll tune apache --access-log access.log --site /var/www/html
      use the visitors of your own log, and your own files
  tcptoll tune apache --present /etc/apache2/apache2.conf --snippet found.conf
      compare the found setting with the present one, and write it to a file
  tcptoll tune nginx --behind-timeout 60s        is it longer than the timeout of the balancer?
  tcptoll tune apache --from tune.json --prove http://staging.example/ --mine \\
          --switch-found './use found.conf' --switch-present './use present.conf'
      alternate between the found setting and the present one on a staging server

The search minimises the p95 page time, within the memory and without refusing a visitor. Among
settings with similar p95 and mean page time (within 5 %), it takes the one that occupies the fewest
workers. It starts the real server in the lab, changes nothing on this machine, and prints the
setting as lines of configuration: KeepAlive, KeepAliveTimeout, MaxKeepAliveRequests and
MaxRequestWorkers, or those of nginx. A search takes about 20 trials, of some 20 s each.

--worker-memory is what one worker adds with your application: for PHP in prefork, the Pss of an
Apache process in /proc/PID/smaps_rollup, without what all share.

Exit status:
  0 a setting was found
  1 every setting refused visitors, the timeout is not longer than that of --behind-timeout, or the
    proof found the setting worse
  2 nothing was measured
  3 measured, but a file could not be written
  130 and 143 stopped by SIGINT and SIGTERM; what was found until then is printed";

/// A server, as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TuneServer {
    /// Apache with the module of --mpm
    Apache,
    /// One process per connection
    ApachePrefork,
    /// One thread per connection
    ApacheWorker,
    /// One thread per request, none per idle connection
    ApacheEvent,
    /// Event loop, no thread per connection
    Nginx,
}

/// Whose files a snippet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TuneDistribution {
    /// Debian and Ubuntu
    Debian,
    /// Red Hat, Fedora and CentOS
    RedHat,
}

/// A way to search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TuneStrategy {
    /// Increase the timeout while that may help, then try fewer workers and other request limits
    #[default]
    Search,
    /// Follow the 2016 article's procedure for servers with little memory
    #[value(name = "vps-2016")]
    Vps2016,
    /// Follow the 2016 article's procedure for servers with much memory and traffic peaks
    #[value(name = "dedicated-2016")]
    Dedicated2016,
}

/// Options of `tune`.
#[derive(Clone, Debug, Args)]
#[command(after_help = TUNE_AFTER)]
pub(crate) struct TuneArgs {
    /// Server to tune
    #[arg(value_name = "SERVER", value_enum)]
    pub server: TuneServer,
    /// Multi-processing module of Apache: prefork, worker or event [default: the one that is
    /// enabled on this machine, otherwise prefork]
    #[arg(long, value_name = "NAME")]
    pub mpm: Option<String>,
    /// Page to copy. It is loaded once from this URL, then served by the lab with the same sizes
    /// and server times
    #[arg(
        long,
        value_name = "URL",
        help_heading = "Page",
        conflicts_with_all = ["site", "har"]
    )]
    pub url: Option<String>,
    /// Access log (common or combined format) from which visitors, pages and think times are taken
    #[arg(long, value_name = "FILE", help_heading = "Visitors")]
    pub access_log: Option<PathBuf>,
    /// Study whose visitors, page and memory are used. The found setting is compared with its arms
    #[arg(long, value_name = "NAME|FILE", help_heading = "Visitors")]
    pub study: Option<String>,
    /// Visitors, page, link, memory
    #[command(flatten)]
    pub load: LoadArgs,
    /// Search strategy
    #[arg(long, value_enum, default_value_t, value_name = "NAME", help_heading = "Search")]
    pub strategy: TuneStrategy,
    /// Configuration file of your server. The found setting is compared with the present one in it
    #[arg(long, value_name = "FILE", help_heading = "Search")]
    pub present: Option<PathBuf>,
    /// Time limit for comparing the found setting with others. 0s: no comparison
    #[arg(long, value_name = "TIME", default_value = "15m", help_heading = "Search")]
    pub compare_time: String,
    /// Idle timeout of the load balancer in front of the server, e.g. 60s. tune checks that the
    /// found timeout is longer
    #[arg(long, value_name = "TIME", help_heading = "Search")]
    pub behind_timeout: Option<String>,
    /// Use the result of an earlier search (from --format json or --out) instead of searching
    #[arg(long, value_name = "FILE", help_heading = "Search")]
    pub from: Option<PathBuf>,
    /// Print the load, the stages and the expected time without running anything
    #[arg(long, help_heading = "Search")]
    pub dry_run: bool,
    /// Load this page of your own server with the found setting and the present one in turn
    #[arg(
        long,
        value_name = "URL",
        help_heading = "Proof",
        requires_all = ["mine", "switch_found", "switch_present"]
    )]
    pub prove: Option<String>,
    /// Confirm that the server of --prove is yours and may be put under load
    #[arg(long, requires = "prove", help_heading = "Proof")]
    pub mine: bool,
    /// Shell command that switches the server to the found setting, and exits when it answers again
    #[arg(long, value_name = "COMMAND", requires = "prove", help_heading = "Proof")]
    pub switch_found: Option<String>,
    /// Shell command that does the same with the present setting
    #[arg(long, value_name = "COMMAND", requires = "prove", help_heading = "Proof")]
    pub switch_present: Option<String>,
    /// Time limit for the proof
    #[arg(long, value_name = "TIME", default_value = "10m", help_heading = "Proof")]
    pub prove_time: String,
    /// Output format on stdout: text, or one JSON object (`tcptoll schema tune`)
    #[arg(
        long,
        value_enum,
        default_value_t,
        hide_possible_values = true,
        value_name = "text|json",
        help_heading = "Output"
    )]
    pub format: Format,
    /// File for the result as JSON [default: a new file in $XDG_DATA_HOME/tcptoll]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Also write the configuration to this file, the lines of each file below its path
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub snippet: Option<PathBuf>,
    /// Distribution for whose files the configuration is written [default: that of this machine,
    /// otherwise Debian]
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Output")]
    pub distribution: Option<TuneDistribution>,
    /// Also write a self-contained HTML page
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Maximum deviation of the measured link from the requested round trip (median) and rate; off: do not
    /// measure the link
    #[arg(
        long,
        value_name = "delay=TIME,rate=PERCENT|off",
        default_value = "delay=1ms,rate=10%",
        help_heading = "Output"
    )]
    pub link_tolerance: String,
    /// Seed of the random visitors [default: a new one for each search]
    #[arg(long, value_name = "NUMBER", help_heading = "Output")]
    pub seed: Option<u64>,
    /// Print everything measured, not one screen
    #[arg(long, help_heading = "Output")]
    pub details: bool,
    /// Print no progress on stderr
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

/// Options of the experiment that a search measures with, but for those that it searches itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadArgs {
    /// As typed, each with one value.
    pub typed: Typed,
}

fn options() -> impl Iterator<Item = &'static Opt> {
    spec().options.iter().copied().filter(|option| is_load(option))
}

impl Args for LoadArgs {
    fn augment_args(command: Command) -> Command {
        let one = |option: &Opt| {
            let argument = argument(option)?;
            let argument = match option.levels {
                // Several values would be several questions; the message about them is ours.
                Levels::Each | Levels::EachOr(_) | Levels::Split(_) => {
                    argument.value_delimiter(None).num_args(1).action(ArgAction::Set)
                }
                _ => argument,
            };
            let otherwise = OTHERWISE.iter().find(|(name, ..)| *name == option.name);
            Some(match otherwise {
                Some((_, help, Some(default))) => {
                    argument.help(format!("{help} [default: {default}]"))
                }
                Some((_, help, None)) => argument.help(*help),
                None => argument,
            })
        };
        command.args(options().filter_map(one))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LoadArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self { typed: typed(options(), matches) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The study of a search, without arms and load.
pub(crate) static SEARCH: LazyLock<Study> = LazyLock::new(|| {
    Study::from_toml(include_str!("../../studies/tune/search.toml"))
        .expect("a test reads these files")
});

/// The experiment that a search measures with.
pub(crate) fn spec() -> &'static Spec {
    experiments::find(&SEARCH.experiment).expect("a test reads these files")
}

/// Options of the load that differ here: name, help, and the default that is shown and taken, if it is another.
pub(crate) const OTHERWISE: [(&str, &str, Option<&str>); 3] = [
    (
        "link",
        "Link between visitors and server: a name (see `tcptoll links`) or values like \
         rtt=37ms,rate=1gbit,loss=0.1% [default: rtt=15ms]",
        None,
    ),
    ("duration", "Length of the measured window of each trial, after the warm-up", Some("12s")),
    (
        "warmup",
        "Time during which visitors arrive before the measured window, so that the server starts \
         its workers",
        Some("8s"),
    ),
];

/// Whether an option says who comes, what is loaded, over which link and with which memory. The others are
/// what is searched, the server, and a server that is not ours.
pub(crate) fn is_load(option: &Opt) -> bool {
    const OTHERS: [&str; 7] = [
        "ca",
        "insecure",
        "keepalive",
        "keepalive-requests",
        "keepalive-timeout",
        "max-workers",
        "server",
    ];
    !OTHERS.contains(&option.name) && !matches!(option.levels, Levels::Arguments | Levels::Setting)
}
