//! What a step consists of: all of it follows from who writes which step of which run.

/// How many ranks write.
pub const RANKS: u32 = 3;
/// Elements of a row of the field.
pub const COLUMNS: u64 = 7;
/// Every so many steps a rank's list travels outside of its batch.
const LARGE_EVERY: u64 = 11;
const LARGE_COUNT: u64 = 20_000;
/// Every so many steps the attribute changes.
const ATTRIBUTE_EVERY: u64 = 3;

/// What a rank puts in a step.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    pub run: u64,
    pub step: u64,
    pub rank: u32,
    /// Of the process that puts it.
    pub life: u64,
}

impl Block {
    /// The rows of the field, and behind them the list.
    pub fn words(self) -> (Vec<u64>, Vec<u64>) {
        let row_words = rows(self.step, self.rank) * COLUMNS;
        let all = row_words + list_count(self.step, self.rank);
        let seed = [self.run, self.step, self.rank.into(), self.life]
            .into_iter()
            .fold(1, |seed, number| mix(seed ^ number));
        let word = |index: u64| mix(seed.wrapping_add(index));
        let (field, list) = (0..row_words, row_words..all);
        (field.map(word).collect(), list.map(word).collect())
    }

    /// What its words come to.
    pub fn digest(self) -> u64 {
        let (field, list) = self.words();
        digest(&field, &list)
    }
}

/// Each word counts, and where it stands.
pub fn digest(field: &[u64], list: &[u64]) -> u64 {
    let counts = mix(field.len() as u64) ^ list.len() as u64;
    let words = field.iter().chain(list);
    words.fold(counts, |digest, word| mix(digest ^ word))
}

/// SplitMix64's.
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Rows of the field that a rank has in a step: none, now and then.
pub fn rows(step: u64, rank: u32) -> u64 {
    (step + 2 * u64::from(rank)) % 4
}

/// Where they begin; with the number of ranks, how many there are of all.
pub fn rows_before(step: u64, rank: u32) -> u64 {
    (0..rank).map(|rank| rows(step, rank)).sum()
}

/// Elements that a rank appends to the list.
pub fn list_count(step: u64, rank: u32) -> u64 {
    match (step + u64::from(rank)) % LARGE_EVERY {
        0 => LARGE_COUNT,
        _ => (step * 7 + u64::from(rank) * 3) % 40,
    }
}

pub fn list_before(step: u64, rank: u32) -> u64 {
    (0..rank).map(|rank| list_count(step, rank)).sum()
}

/// Whether rank 0 sets the attribute in this step.
pub fn sets_attribute(step: u64) -> bool {
    step.is_multiple_of(ATTRIBUTE_EVERY)
}

/// What the attribute is in this step.
pub fn attribute(step: u64) -> i64 {
    (step - step % ATTRIBUTE_EVERY) as i64
}

/// How many steps a run has that nothing breaks.
pub fn steps_of(run: u64) -> u64 {
    5 + mix(run) % 60
}
