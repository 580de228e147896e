//! Random and damaged bytes: decoded as the format says or refused, within bounded memory.

#[path = "../examples/fuzz/hostile.rs"]
mod hostile;

#[test]
fn whatever_arrives_is_decoded_by_the_book_within_bounded_memory() {
    let mut all = hostile::Attempts::default();
    for seed in 0..3_000 {
        all.add(hostile::run(seed));
    }
    assert!(all.is_bounded(), "{all:?}");
    assert!(all.bytes > 2_000_000 && all.frames > all.inputs && all.refused > 500, "{all:?}");
}
