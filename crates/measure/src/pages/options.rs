//! Options of what a web server of the lab serves.

use tcptoll_core::experiment::option::{Only, Opt};

/// Heading of what is loaded.
pub(super) const PAGE: &str = "Page";

/// Resources of a page that the lab makes.
pub(super) const RESOURCES: Opt =
    Opt::each(PAGE, "resources", "N", "Number of resources of the generated page")
        .number()
        .by_default("20")
        .only(&[Only::Lab]);
/// What they are.
pub(super) const RESOURCE_KIND: Opt =
    Opt::each(PAGE, "resource-kind", "KIND", "Type of the resources: css, script or image")
        .by_default("css")
        .only(&[Only::Lab]);
/// Their size.
pub(super) const RESOURCE_SIZE: Opt =
    Opt::each(PAGE, "resource-size", "SIZE", "Size of each resource")
        .by_default("2K")
        .only(&[Only::Lab]);
/// The document's.
pub(super) const PAGE_SIZE: Opt = Opt::each(PAGE, "page-size", "SIZE", "Size of the HTML document")
    .by_default("4K")
    .only(&[Only::Lab]);
/// How long the document takes.
pub(super) const WORK: Opt =
    Opt::each(PAGE, "work", "TIME", "Time that PHP takes for the document. 0 serves a static file")
        .by_default("0")
        .only(&[Only::Lab]);
/// Hosts of the resources.
pub(super) const SHARDS: Opt = Opt::each(
    PAGE,
    "shards",
    "N",
    "Number of host names over which the resources are spread (domain sharding). 1 serves them \
     from the host of the page",
)
.number()
.by_default("1")
.only(&[Only::Lab]);
/// A folder instead.
pub(super) const SITE: Opt =
    Opt::one(PAGE, "site", "FOLDER", "Serve this folder instead of a generated page")
        .only(&[Only::Lab]);
/// The page in it.
pub(super) const PATH: Opt =
    Opt::one(PAGE, "path", "PATH", "Path of the page within the folder of --site")
        .by_default("/")
        .only(&[Only::With("site", "")]);
/// A recorded page instead.
pub(super) const HAR: Opt = Opt::one(
    PAGE,
    "har",
    "FILE",
    "Load the resources that a HAR file lists, with their sizes, order and server times. The lab's \
     server serves them",
)
.only(&[Only::Lab]);
/// Compression.
pub(super) const COMPRESS: Opt =
    Opt::each(PAGE, "compress", "on,off", "Request compressed content (Accept-Encoding)")
        .by_default("off");
