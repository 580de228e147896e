//! Causes that `time-wait` may name.

use crate::kit::causes::ports::{LOCAL_PORTS_SCARCE, PORTS_SEARCH_SLOW};
use tcptoll_core::experiment::spec::CauseSpec;

/// Every cause that a run may name, in the order of the answer.
pub(super) const ALL: &[&CauseSpec] = &[&LOCAL_PORTS_SCARCE, &PORTS_SEARCH_SLOW];
