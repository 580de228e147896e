//! The description of an option: on the command line, in studies, in the help and in the docs.

use serde::ser::{Serialize, SerializeMap as _, Serializer};

/// An option of an experiment.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Opt {
    /// Name without dashes, kebab case: the key in studies.
    pub name: &'static str,
    /// Other names on the command line.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub aliases: &'static [&'static str],
    /// Letters on the command line, those that other tools use for it; the help shows the first as its own.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub letters: &'static [char],
    /// Placeholder of its value in the help: `TIME`, `on|off`; empty for a flag.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub value: &'static str,
    /// Heading in the help.
    pub group: &'static str,
    /// Help, one or two sentences, without the default.
    pub help: &'static str,
    /// The value where nothing is typed.
    #[serde(skip_serializing_if = "DefaultValue::is_nothing")]
    pub default: DefaultValue,
    /// How often it may be given, and what becomes of several values.
    pub levels: Levels,
    /// Where it applies: all of these hold. Empty: everywhere.
    #[serde(rename = "applies", skip_serializing_if = "<[_]>::is_empty")]
    pub only: &'static [Only],
    /// The metric that its levels are compared in, where no other option is varied and the study names none;
    /// absent: the experiment's primary metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asks: Option<&'static str>,
    /// Whether a value may begin with a minus, so that the message about it is ours.
    #[serde(skip)]
    pub number: bool,
}

/// The value of an option where nothing is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DefaultValue {
    /// The option has no effect then; a flag is off.
    Nothing,
    /// This text, which is shown in the help and parsed as if it were typed.
    Text(&'static str),
    /// It follows from other settings; how, in words for the help.
    Words(&'static str),
}

impl DefaultValue {
    // By reference, as serde calls it.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    fn is_nothing(&self) -> bool {
        *self == Self::Nothing
    }
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
    /// A setting that studies have. On the command line it follows from other options.
    Setting,
}

impl Serialize for Levels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::One => "one",
            Self::Each | Self::Split(_) | Self::EachOr(_) => "each",
            Self::Together => "together",
            Self::Flag => "flag",
            Self::Arguments => "arguments",
            Self::Setting => "setting",
        })
    }
}

/// Where an option applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// Where both hosts are ours: in the lab, or on machines of the user's; it has no effect on a server that
    /// is not ours.
    Lab,
    /// Where the network is the lab's own; on machines of the user's it has no effect, or would change them.
    OwnNetwork,
    /// On machines of the user's, over ssh.
    OverSsh,
    /// On a server that is not ours.
    Target,
    /// Together with another option; and the value that a message writes after its name, or nothing.
    With(&'static str, &'static str),
    /// Where another option has one of these values.
    When(&'static str, &'static [&'static str]),
}

impl Serialize for Only {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (key, option, values) = match self {
            Self::Lab => return serializer.serialize_str("lab"),
            Self::OwnNetwork => return serializer.serialize_str("own-network"),
            Self::OverSsh => return serializer.serialize_str("over-ssh"),
            Self::Target => return serializer.serialize_str("target"),
            Self::With(option, _) => ("with", option, None),
            Self::When(option, values) => ("when", option, Some(values)),
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(key, option)?;
        if let Some(values) = values {
            map.serialize_entry("is", values)?;
        }
        map.end()
    }
}

/// Made in constants: what it is, then what is special about it.
impl Opt {
    const fn new(
        levels: Levels,
        group: &'static str,
        name: &'static str,
        value: &'static str,
        help: &'static str,
    ) -> Self {
        Self {
            name,
            aliases: &[],
            letters: &[],
            value,
            group,
            help,
            default: DefaultValue::Nothing,
            levels,
            only: &[],
            asks: None,
            number: false,
        }
    }

    /// With one value.
    pub const fn one(
        group: &'static str,
        name: &'static str,
        value: &'static str,
        help: &'static str,
    ) -> Self {
        Self::new(Levels::One, group, name, value, help)
    }

    /// With levels, an arm each.
    pub const fn each(
        group: &'static str,
        name: &'static str,
        value: &'static str,
        help: &'static str,
    ) -> Self {
        Self::new(Levels::Each, group, name, value, help)
    }

    /// With values that are one setting together.
    pub const fn together(
        group: &'static str,
        name: &'static str,
        value: &'static str,
        help: &'static str,
    ) -> Self {
        Self::new(Levels::Together, group, name, value, help)
    }

    /// Without a value.
    pub const fn flag(group: &'static str, name: &'static str, help: &'static str) -> Self {
        Self::new(Levels::Flag, group, name, "", help)
    }

    /// The arguments after the options.
    pub const fn arguments(name: &'static str, value: &'static str, help: &'static str) -> Self {
        Self::new(Levels::Arguments, "", name, value, help)
    }

    /// A setting of studies only.
    pub const fn setting(name: &'static str, value: &'static str, help: &'static str) -> Self {
        Self::new(Levels::Setting, "", name, value, help)
    }

    /// Its values may contain commas: this function separates them.
    #[must_use]
    pub const fn split(mut self, split: fn(&str) -> Vec<String>) -> Self {
        self.levels = Levels::Split(split);
        self
    }

    /// Alone, without a value, it means this one.
    #[must_use]
    pub const fn alone(mut self, value: &'static str) -> Self {
        self.levels = Levels::EachOr(value);
        self
    }

    /// Its levels are compared in this metric.
    #[must_use]
    pub const fn asks(mut self, metric: &'static str) -> Self {
        self.asks = Some(metric);
        self
    }

    /// Its value is a number, which may begin with a minus.
    #[must_use]
    pub const fn number(mut self) -> Self {
        self.number = true;
        self
    }

    /// It goes by these names too.
    #[must_use]
    pub const fn alias(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// It has letters.
    #[must_use]
    pub const fn letters(mut self, letters: &'static [char]) -> Self {
        self.letters = letters;
        self
    }

    /// This is parsed where nothing is typed.
    #[must_use]
    pub const fn by_default(mut self, text: &'static str) -> Self {
        self.default = DefaultValue::Text(text);
        self
    }

    /// Where nothing is typed, its value follows from others like this.
    #[must_use]
    pub const fn derived(mut self, words: &'static str) -> Self {
        self.default = DefaultValue::Words(words);
        self
    }

    /// It applies only there.
    #[must_use]
    pub const fn only(mut self, only: &'static [Only]) -> Self {
        self.only = only;
        self
    }

    /// It has another text in the help: with an example that suits the experiment.
    #[must_use]
    pub const fn worded(mut self, help: &'static str) -> Self {
        self.help = help;
        self
    }

    /// It has another heading in the help.
    #[must_use]
    pub const fn in_group(mut self, group: &'static str) -> Self {
        self.group = group;
        self
    }

    /// Its help with its default, as the help shows it.
    pub fn help_with_default(&self) -> String {
        match self.default {
            DefaultValue::Nothing => self.help.to_owned(),
            DefaultValue::Text(value) | DefaultValue::Words(value) => {
                format!("{} [default: {value}]", self.help)
            }
        }
    }

    /// Whether it applies only with some values of another option.
    pub fn depends_on(&self, other: &str) -> bool {
        self.only.iter().any(|only| matches!(only, Only::When(option, _) if *option == other))
    }

    /// Whether it applies where another option has this value.
    pub fn applies_where(&self, other: &str, value: &str) -> bool {
        self.only.iter().all(|only| match only {
            Only::When(option, values) => *option != other || values.contains(&value),
            _ => true,
        })
    }

    /// The option as a sentence names it: `--to`, `a URL`.
    pub fn named(&self) -> String {
        match self.levels {
            Levels::Arguments => format!("a {}", self.value),
            _ => format!("--{}", self.name),
        }
    }

    /// The option as it is typed: `--to HOST:PORT`, `URL`.
    pub fn typed(&self) -> String {
        match self.levels {
            Levels::Arguments => self.value.to_owned(),
            _ => format!("--{} {}", self.name, self.value).trim_end().to_owned(),
        }
    }
}
