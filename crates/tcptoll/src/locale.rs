//! Which characters does the locale of the user have?

/// Text for people in the characters of their locale: ASCII where that has no Unicode.
pub(crate) fn in_locale(text: &str) -> String {
    if has_unicode() { text.to_owned() } else { tcptoll_show::ascii(text) }
}

/// Whether the locale has Unicode. Where no variable names a locale, as in most containers, it is taken to have it.
pub(crate) fn has_unicode() -> bool {
    let value = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    let named = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(value);
    named.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}
