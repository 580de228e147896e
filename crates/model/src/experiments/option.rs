//! The description of an option: on the command line, in studies, in the help and in the docs.

/// An option of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// Name without dashes, kebab case: the key in studies.
    pub name: &'static str,
    /// Other names on the command line.
    pub aliases: &'static [&'static str],
    /// Placeholder of its value in the help: `TIME`, `on|off`; empty for a flag.
    pub value: &'static str,
    /// Heading in the help.
    pub group: &'static str,
    /// Help, one or two sentences, without the default.
    pub help: &'static str,
    /// The value where nothing is typed.
    pub default: DefaultValue,
    /// How often it may be given, and what becomes of several values.
    pub levels: Levels,
    /// Where it applies.
    pub only: Only,
}

/// The value of an option where nothing is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// The option has no effect then.
    Nothing,
    /// This text, which is shown in the help and parsed as if it were typed.
    Text(&'static str),
    /// It follows from other settings; how, in words for the help.
    Words(&'static str),
}

/// What becomes of several values.
#[derive(Clone, Copy, Debug)]
pub enum Levels {
    /// One value.
    One,
    /// Several, separated by commas or given again: an arm each.
    Each,
    /// As [`Levels::Each`], separated by a function, because values may contain commas.
    Split(fn(&str) -> Vec<String>),
    /// It may be given again; all values together are one setting.
    Together,
    /// A flag without a value.
    Flag,
    /// As [`Levels::Each`]; the option alone, without a value, means this one.
    EachOr(&'static str),
    /// Not an option but the arguments after it, together one setting.
    Arguments,
}

/// Where an option applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// Everywhere.
    Anywhere,
    /// In the lab; it has no effect on a server that is not ours.
    Lab,
    /// On a server that is not ours.
    Target,
    /// Together with another option.
    With(&'static str),
}
