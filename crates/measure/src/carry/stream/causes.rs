//! Causes that `stream` may name: what limits bulk data.

use crate::carry::throughput;
use tcptoll_core::experiment::spec::CauseSpec;

/// Every cause that a run may name, in the order of the answer.
pub(super) const ALL: &[&CauseSpec] = throughput::ALL;
