//! Options of what a web server of the lab serves.

use super::option::{Only, Opt};

/// Heading of what is loaded.
pub const PAGE: &str = "Page";

/// Resources of a page that the lab makes.
pub const RESOURCES: Opt =
    Opt::each(PAGE, "resources", "N", "Resources of the page that the lab makes")
        .number()
        .by_default("20")
        .only(&[Only::Lab]);
/// What they are.
pub const RESOURCE_KIND: Opt =
    Opt::each(PAGE, "resource-kind", "KIND", "What they are: css, script, image")
        .by_default("css")
        .only(&[Only::Lab]);
/// Their size.
pub const RESOURCE_SIZE: Opt = Opt::each(PAGE, "resource-size", "SIZE", "Size of each resource")
    .by_default("2K")
    .only(&[Only::Lab]);
/// The document's.
pub const PAGE_SIZE: Opt = Opt::each(PAGE, "page-size", "SIZE", "Size of the document")
    .by_default("4K")
    .only(&[Only::Lab]);
/// How long the document takes.
pub const WORK: Opt =
    Opt::each(PAGE, "work", "TIME", "Time that PHP takes to make the document; 0: a static file")
        .by_default("0")
        .only(&[Only::Lab]);
/// Hosts of the resources.
pub const SHARDS: Opt =
    Opt::each(PAGE, "shards", "N", "Host names over which resources are spread; 1: none")
        .number()
        .by_default("1")
        .only(&[Only::Lab]);
/// A folder instead.
pub const SITE: Opt =
    Opt::one(PAGE, "site", "FOLDER", "Serve this folder instead of a page that the lab makes")
        .only(&[Only::Lab]);
/// The page in it.
pub const PATH: Opt = Opt::one(PAGE, "path", "PATH", "Path of the page in the folder")
    .by_default("/")
    .only(&[Only::With("site", "")]);
/// A recorded page instead.
pub const HAR: Opt = Opt::one(
    PAGE,
    "har",
    "FILE",
    "Load the resources of a HAR file instead: their sizes, order and server times, from \
     the lab's server",
)
.only(&[Only::Lab]);
/// Compression.
pub const COMPRESS: Opt =
    Opt::each(PAGE, "compress", "on,off", "Accept compressed content").by_default("off");
