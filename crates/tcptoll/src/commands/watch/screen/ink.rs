//! Lines of the screen before they are painted.

/// What a part of a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    Plain,
    Strong,
    Faint,
    Problem,
    Warning,
    Bar,
    /// A key that can be pressed, or a state of the screen.
    Reversed,
}

/// One line of the screen: parts with their ink.
pub(super) type Line = Vec<(Ink, String)>;
