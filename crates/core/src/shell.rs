//! How is a word written so that a shell takes it as it is?

/// One argument of a command line for a POSIX shell, quoted if it needs to be.
pub fn argument(text: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !text.is_empty() && text.chars().all(safe) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
