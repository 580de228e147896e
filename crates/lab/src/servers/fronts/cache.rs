//! A local cache in front of the backend, shared by all workers of our own front service.
//!
//! One worker refreshes an expired value. Until it has succeeded, all others answer the expired value,
//! and so does that worker if its call fails: a backend that stalls holds one worker.

use std::sync::{Mutex, PoisonError, RwLock};

/// A value, and when it came, ns.
#[derive(Clone, Debug)]
struct CachedValue {
    value: Vec<u8>,
    since_ns: u64,
}

/// One value of the backend.
#[derive(Debug)]
pub(super) struct Cache {
    /// For this long, ns.
    keep_ns: u64,
    kept: RwLock<Option<CachedValue>>,
    /// Held by the worker that refreshes.
    refreshing: Mutex<()>,
}

impl Cache {
    /// Empty.
    pub(super) fn new(keep_ns: u64) -> Self {
        Self { keep_ns, kept: RwLock::new(None), refreshing: Mutex::new(()) }
    }

    /// The value. `call` asks the backend, `now` tells the time, ns.
    ///
    /// Errors: those of `call` while there is no value at all.
    pub(super) fn value<E>(
        &self,
        now: impl Fn() -> u64,
        call: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner).clone();
        let refresh = || {
            let value = call()?;
            let new = CachedValue { value: value.clone(), since_ns: now() };
            *self.kept.write().unwrap_or_else(PoisonError::into_inner) = Some(new);
            Ok(value)
        };
        let Some(kept) = kept else { return refresh() };
        if now().saturating_sub(kept.since_ns) < self.keep_ns {
            return Ok(kept.value);
        }
        match self.refreshing.try_lock() {
            Ok(_held) => Ok(refresh().unwrap_or(kept.value)),
            Err(_) => Ok(kept.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Answer = Result<Vec<u8>, &'static str>;

    #[expect(clippy::unnecessary_wraps, reason = "it is compared with answers")]
    fn ok(text: &str) -> Answer {
        Ok(text.as_bytes().to_vec())
    }

    #[test]
    fn a_fresh_value_is_answered_without_a_call_and_an_expired_one_is_refreshed() {
        let cache = Cache::new(100);
        assert_eq!(cache.value(|| 0, || Err("down")), Err("down"));
        assert_eq!(cache.value(|| 0, || ok("one")), ok("one"));
        assert_eq!(cache.value(|| 99, || Err("not called")), ok("one"));
        assert_eq!(cache.value(|| 100, || ok("two")), ok("two"));
        assert_eq!(cache.value(|| 199, || Err("not called")), ok("two"));
    }

    #[test]
    fn an_expired_value_is_answered_if_the_backend_fails() {
        let cache = Cache::new(100);
        assert_eq!(cache.value(|| 0, || ok("old")), ok("old"));
        assert_eq!(cache.value(|| 100, || Err("down")), ok("old"));
    }

    #[test]
    fn while_one_worker_refreshes_the_others_answer_the_expired_value() {
        let cache = Cache::new(100);
        assert_eq!(cache.value(|| 0, || ok("old")), ok("old"));
        let refreshed = cache.value(
            || 100,
            || {
                assert_eq!(cache.value(|| 100, || -> Answer { panic!("called") }), ok("old"));
                ok("new")
            },
        );
        assert_eq!(refreshed, ok("new"));
    }
}
