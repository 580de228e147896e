//! Which words does `tune` take? The options of the load are those of the experiment that it measures with.
#![allow(clippy::doc_markdown)] // the doc comments are the help text, which has no back quotes

use std::path::PathBuf;

use clap::error::Error;
use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use tcptoll_model::experiments::option::{Levels, Opt};

use super::Format;
use super::experiment::{Typed, argument, typed};
use crate::tune_studies::{OTHERWISE, is_load, spec};

const TUNE_AFTER: &str = "\
Examples:
  tcptoll tune apache --mpm prefork --memory 512M --worker-memory 20M --rate 1 --pages 2
      the setting for a server of 512 MB whose workers take 20 MB each
  tcptoll tune apache-prefork --study vps-2016
      the visitors of a study, and its settings for comparison
  tcptoll tune nginx --url http://localhost/     a copy of this page, in the lab
  tcptoll tune apache --access-log access.log --site /var/www/html
      the visitors of your own log, and your own files
  tcptoll tune apache --present /etc/apache2/apache2.conf --snippet found.conf
      the present setting next to the found one, and the found one in a file
  tcptoll tune nginx --behind-timeout 60s        is the timeout longer than the balancer's?
  tcptoll tune apache --from tune.json --prove http://staging.example/ --mine \\
          --switch-found './use found.conf' --switch-present './use present.conf'
      the found setting and the present one in turn, on a staging server

Sought: the least p95 page time within the memory, with no visitor refused. Of settings that are
alike (within 5 %) in p95 and mean page time, the one that holds the fewest workers.

It starts the real server in the lab and changes nothing on this machine. The setting is printed as
lines of configuration. A search takes about 20 trials.

Exit status: 0 a setting was found; 1 every setting refused visitors, the balancer's rule does
not hold, or the proof found the setting worse; 2 nothing was measured; 3 measured, but a file
could not be written; 130 and 143 stopped by a signal, with what is known so far.";

/// A server, as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TuneServer {
    /// With the module of --mpm
    Apache,
    /// A process for each connection
    ApachePrefork,
    /// A thread for each connection
    ApacheWorker,
    /// A thread for each request
    ApacheEvent,
    /// No thread for a connection
    Nginx,
}

/// Whose files a snippet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TuneDistribution {
    /// Debian, Ubuntu
    Debian,
    /// Red Hat, Fedora, CentOS
    RedHat,
}

/// A way to search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TuneStrategy {
    /// Timeouts from short to long while they may help, then fewer workers and other limits
    #[default]
    Search,
    /// The procedure of the 2016 article for little memory
    #[value(name = "vps-2016")]
    Vps2016,
    /// The procedure of the 2016 article for much memory and peaks
    #[value(name = "dedicated-2016")]
    Dedicated2016,
}

/// Options of `tune`.
#[derive(Clone, Debug, Args)]
#[command(after_help = TUNE_AFTER)]
pub struct TuneArgs {
    /// Server whose setting is sought
    #[arg(value_name = "SERVER", value_enum)]
    pub server: TuneServer,
    /// Module of Apache: prefork, worker, event [default: the one that is enabled on this machine, else
    /// prefork]
    #[arg(long, value_name = "NAME")]
    pub mpm: Option<String>,
    /// Page to copy: it is loaded once from this URL, then served by the lab with its sizes and times
    #[arg(
        long,
        value_name = "URL",
        help_heading = "Page",
        conflicts_with_all = ["site", "har"]
    )]
    pub url: Option<String>,
    /// Access log (common or combined format) that visitors, pages and thinking times are taken from
    #[arg(long, value_name = "FILE", help_heading = "Visitors")]
    pub access_log: Option<PathBuf>,
    /// Study whose visitors, page and memory are taken, and whose arms are compared with the found setting
    #[arg(long, value_name = "NAME|FILE", help_heading = "Visitors")]
    pub study: Option<String>,
    /// Visitors, page, link, memory
    #[command(flatten)]
    pub load: LoadArgs,
    /// How to search
    #[arg(long, value_enum, default_value_t, value_name = "NAME", help_heading = "Search")]
    pub strategy: TuneStrategy,
    /// Configuration file of your server, whose present setting is compared with the found one
    #[arg(long, value_name = "FILE", help_heading = "Search")]
    pub present: Option<PathBuf>,
    /// Time for the comparison of the found setting with others; 0s: none
    #[arg(long, value_name = "TIME", default_value = "15m", help_heading = "Search")]
    pub compare_time: String,
    /// Idle timeout of the balancer in front of the server. Checks that the found timeout is longer
    #[arg(long, value_name = "TIME", help_heading = "Search")]
    pub behind_timeout: Option<String>,
    /// Take the result of an earlier search (--format json, or --out) instead of searching
    #[arg(long, value_name = "FILE", help_heading = "Search")]
    pub from: Option<PathBuf>,
    /// Print the load, the stages and the time that they take, and end
    #[arg(long, help_heading = "Search")]
    pub dry_run: bool,
    /// Load this page of a server of yours with the found setting and the present one in turn
    #[arg(
        long,
        value_name = "URL",
        help_heading = "Proof",
        requires_all = ["mine", "switch_found", "switch_present"]
    )]
    pub prove: Option<String>,
    /// The server of --prove is mine, and may be loaded
    #[arg(long, requires = "prove", help_heading = "Proof")]
    pub mine: bool,
    /// Shell command that makes the server use the found setting, and ends when the server answers again
    #[arg(long, value_name = "COMMAND", requires = "prove", help_heading = "Proof")]
    pub switch_found: Option<String>,
    /// Shell command that makes the server use the present setting
    #[arg(long, value_name = "COMMAND", requires = "prove", help_heading = "Proof")]
    pub switch_present: Option<String>,
    /// Time for the proof
    #[arg(long, value_name = "TIME", default_value = "10m", help_heading = "Proof")]
    pub prove_time: String,
    /// What to print on stdout: text, or one JSON object (`tcptoll schema tune`)
    #[arg(
        long,
        value_enum,
        default_value_t,
        hide_possible_values = true,
        value_name = "text|json",
        help_heading = "Output"
    )]
    pub format: Format,
    /// Where to write the result as JSON; default: a new file in $XDG_DATA_HOME/tcptoll
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Also write the configuration to this file: the lines of each file after its path
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub snippet: Option<PathBuf>,
    /// Whose files the configuration is for [default: those of this machine, else Debian's]
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Output")]
    pub distribution: Option<TuneDistribution>,
    /// Also write a self-contained HTML page
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// How far the measured link may be from what was asked. Page times are far longer
    #[arg(
        long,
        value_name = "delay=TIME,rate=PERCENT",
        default_value = "delay=1ms,rate=10%",
        help_heading = "Output"
    )]
    pub link_tolerance: String,
    /// Seed of the visitors [default: another for each search]
    #[arg(long, value_name = "NUMBER", help_heading = "Output")]
    pub seed: Option<u64>,
    /// No progress on stderr
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

/// Options of the experiment that a search measures with, but for those that it searches itself.
#[derive(Clone, Debug, Default)]
pub struct LoadArgs {
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
