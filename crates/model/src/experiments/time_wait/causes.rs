//! Causes that `time-wait` may name.

use crate::causes::ports::{LOCAL_PORTS_SCARCE, PORTS_SEARCH_SLOW};
use crate::causes::spec::CauseSpec;

/// Every cause that a run may name, in the order of the answer.
pub(super) const ALL: &[&CauseSpec] = &[&LOCAL_PORTS_SCARCE, &PORTS_SEARCH_SLOW];
