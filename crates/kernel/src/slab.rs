//! How large are the kernel's own structures? From `/proc/slabinfo`, which root alone may read.

/// Bytes of the structures that one TCP connection is made of on this host: the socket, its inode,
/// its file and the directory entry that names it. A direct descriptor of `io_uring` has no entry
/// and no inode number of its own to look up, but the same structures.
///
/// None: this user may not read it, or this kernel has merged a kind with others of its size.
/// Source: slabinfo(5), read with Linux 6.18 (2368, 832, 192 and 192 bytes).
pub fn connection_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/slabinfo").ok()?;
    ["TCP", "sock_inode_cache", "filp", "dentry"].iter().map(|name| size_of_kind(&text, name)).sum()
}

/// Memory of the structures that one TCP socket is made of on this host, bytes, with its share of
/// what the kernel's allocator cannot use of a page: the socket, its inode, its file, its directory
/// entry, what a security module adds to inode and file, and, of an end that connects, the two
/// records of its local port.
///
/// None: this user may not read it, or this kernel has merged one of the first four kinds with
/// others. A kind of the rest that this kernel does not have counts nothing.
/// Source: slabinfo(5) and `/sys/kernel/slab`, read with Linux 6.18: 3,829 bytes of a socket that
/// was accepted, 4,085 of one that connected.
pub fn socket_bytes(ipv6: bool, connects: bool) -> Option<f64> {
    let text = std::fs::read_to_string("/proc/slabinfo").ok()?;
    let socket = if ipv6 { "TCPv6" } else { "TCP" };
    let own = [socket, "sock_inode_cache", "filp", "dentry"];
    let own: f64 = own.iter().map(|name| share_of_kind(&text, name)).sum::<Option<f64>>()?;
    let modules = ["lsm_inode_cache", "lsm_file_cache"];
    let ports: &[&str] = if connects { &["tcp_bind_bucket", "tcp_bind2_bucket"] } else { &[] };
    Some(own + modules.iter().chain(ports).filter_map(|name| slab_size(name)).sum::<f64>())
}

fn size_of_kind(text: &str, name: &str) -> Option<u64> {
    kind(text, name)?.nth(2)?.parse().ok()
}

/// Memory of one object of a kind: that of a slab, divided by the objects in it.
fn share_of_kind(text: &str, name: &str) -> Option<f64> {
    let mut words = kind(text, name)?.skip(3);
    let objects: u64 = words.next()?.parse().ok()?;
    let pages: u64 = words.next()?.parse().ok()?;
    (objects > 0).then(|| (pages * page_bytes()) as f64 / objects as f64)
}

/// The numbers of a kind, after its name.
fn kind<'a>(text: &'a str, name: &str) -> Option<std::str::SplitWhitespace<'a>> {
    let mut kinds = text.lines().map(str::split_whitespace);
    kinds.find_map(|mut words| (words.next()? == name).then_some(words))
}

/// Memory of one object of a kind that may share its slabs, and so its line, with others.
fn slab_size(name: &str) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/sys/kernel/slab/{name}/slab_size")).ok()?;
    text.trim().parse().ok()
}

/// Memory of all structures of the whole machine, bytes: `Slab` of `/proc/meminfo`.
pub fn machine_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Slab:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// A page of memory, bytes: what the kernel counts TCP memory in.
pub fn page_bytes() -> u64 {
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    page.and_then(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes > 0).unwrap_or(4_096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_kind_is_the_third_number_of_its_line() {
        let text = "slabinfo - version: 2.1\n# name <active_objs> <num_objs> <objsize>\n\
                    TCPv6 0 0 2496 13 8 : tunables\nTCP 26 52 2368 13 8 : tunables\n";
        assert_eq!(size_of_kind(text, "TCP"), Some(2368));
        assert_eq!(size_of_kind(text, "filp"), None);
    }

    #[test]
    fn an_object_costs_its_share_of_a_whole_slab() {
        let text =
            "TCPv6 0 0 2496 13 8 : tunables\nTCP 26 52 2368 13 8 : tunables\nbad 1 1 8 0 1\n";
        let share = share_of_kind(text, "TCP").unwrap();
        assert!((share - 8.0 * page_bytes() as f64 / 13.0).abs() < 1e-6);
        assert_eq!(share_of_kind(text, "bad"), None);
        assert_eq!(share_of_kind(text, "filp"), None);
    }
}
