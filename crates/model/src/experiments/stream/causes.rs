//! Causes that `stream` may name: what limits bulk data.

use crate::causes::spec::CauseSpec;
use crate::causes::throughput;

/// Every cause that a run may name, in the order of the answer.
pub(super) const ALL: &[&CauseSpec] = throughput::ALL;
