//! Values as programs write them: times, sizes, switches, addresses.

/// A time in seconds: `1m 30s`, `75s`, `100ms`; a bare number has the program's own unit, given in
/// seconds.
pub(super) fn seconds(text: &str, bare: f64) -> Option<f64> {
    let mut total = 0.0;
    let mut rest = text.trim();
    if rest.is_empty() || rest.len() > 64 {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest.get(..digits)?.parse().ok()?;
        rest = rest.get(digits..)?;
        let unit_end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = match rest.get(..unit_end)? {
            "" => bare,
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" | "mi" | "min" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            "w" => 604_800.0,
            "M" => 2_592_000.0,
            "y" => 31_536_000.0,
            _ => return None,
        };
        // 700 ms are 0.7 s, not 0.7000000000000001 s.
        let number = number as f64;
        total += if unit < 1.0 { number / (1.0 / unit).round() } else { number * unit };
        rest = rest.get(unit_end..)?.trim_start();
    }
    Some(total)
}

/// A size in bytes: `8k`, `1m`, `2g`, in either case.
pub(super) fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text.get(..digits)?.parse().ok()?;
    let factor: u64 = match text.get(digits..)?.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        "g" | "gb" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// A number that is not negative.
pub(super) fn count(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// `on` or `off`, in the words of any of the programs.
pub(super) fn switch(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "on" | "yes" | "true" | "1" => Some(true),
        "off" | "no" | "false" | "0" => Some(false),
        _ => None,
    }
}

/// `address:port` of an address that may lack either: `8080`, `*:80`, `:80`, `[::]:80`, `localhost`.
pub(super) fn address(text: &str, any: &str, port: Option<u16>) -> Option<String> {
    let text = text.trim();
    if let Ok(port) = text.parse::<u16>() {
        return Some(format!("{any}:{port}"));
    }
    let (host, port) = match text.rsplit_once(':') {
        // The colon of an IPv6 address is no port's.
        Some((host, _)) if host.contains(':') && !host.ends_with(']') => (text, port?),
        Some((host, port)) => (host, port.parse().ok()?),
        None => (text, port?),
    };
    let host = if host.is_empty() || host == "*" { any } else { host };
    Some(if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    })
}

/// Host and port of a URL, and its path of a Unix socket if it has one.
pub(super) fn url_host(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    if let Some(path) = rest.strip_prefix("unix:") {
        return Some(path.split(':').next().unwrap_or(path).to_owned());
    }
    let host = rest.split(['/', '?', '#']).next()?;
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let port = match scheme.to_ascii_lowercase().as_str() {
        "https" | "wss" | "h2" => 443,
        "fcgi" => 8000,
        "ajp" => 8009,
        _ => 80,
    };
    if host.is_empty() { None } else { address(host, "localhost", Some(port)) }
}
