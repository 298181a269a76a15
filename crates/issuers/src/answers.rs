//! What a command has said of tokens, for a minute, in bounded memory.

use crate::introspection::Claims;
use ring::digest::{SHA256, digest};
use serde_json::Value;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long an answer counts.
pub(crate) const KEPT: Duration = Duration::from_secs(60);
/// What all answers hold at most, in bytes.
const ANSWERS_BYTES_MAX: usize = 8 << 20;
/// What an entry holds beside its claims, and each value of those: rounded up.
const ENTRY_BYTES: usize = 128;

/// The SHA-256 of a token.
pub(crate) type Hash = [u8; 32];

/// What was said of one token.
struct Said {
    until: Instant,
    /// What is so of its holder, if it is a token.
    claims: Option<Claims>,
    bytes: usize,
}

/// What was said of tokens.
#[derive(Default)]
pub(crate) struct Answers {
    by_hash: HashMap<Hash, Said>,
    /// What they hold together.
    bytes: usize,
}

impl Answers {
    /// What was said of a token, while that counts.
    pub fn get(&self, hash: &Hash, now: Instant) -> Option<Option<Claims>> {
        let said = self.by_hash.get(hash)?;
        (now < said.until).then(|| said.claims.clone())
    }

    /// Keeps an answer, if there is room or can be made. What is over goes first, then what lets nobody in: whoever has
    /// no token can make as many answers of that kind as they like.
    pub fn keep(&mut self, hash: Hash, claims: Option<Claims>, now: Instant) {
        self.forget(&hash);
        let bytes = ENTRY_BYTES + claims.as_ref().map_or(0, held);
        if !self.has_room(bytes) {
            self.retain(|said| now < said.until);
        }
        if !self.has_room(bytes) {
            self.retain(|said| said.claims.is_some());
        }
        if !self.has_room(bytes) {
            return;
        }
        self.bytes += bytes;
        let until = now + KEPT;
        self.by_hash.insert(
            hash,
            Said {
                until,
                claims,
                bytes,
            },
        );
    }

    /// Forgets what was said of a token.
    pub fn forget(&mut self, hash: &Hash) {
        if let Some(said) = self.by_hash.remove(hash) {
            self.bytes -= said.bytes;
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.bytes + bytes <= ANSWERS_BYTES_MAX
    }

    fn retain(&mut self, is_kept: impl Fn(&Said) -> bool) {
        self.by_hash.retain(|_, said| is_kept(said));
        self.bytes = self.by_hash.values().map(|said| said.bytes).sum();
    }
}

/// Which token it is.
pub(crate) fn hash(token: &str) -> Hash {
    let hash = digest(&SHA256, token.as_bytes());
    hash.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// What claims hold in memory, about: each value has an entry.
fn held(claims: &Claims) -> usize {
    let of_one = |(name, value): (&String, &Value)| name.len() + held_by(value);
    claims.iter().map(of_one).sum()
}

fn held_by(value: &Value) -> usize {
    ENTRY_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(values) => values.iter().map(held_by).sum(),
            Value::Object(claims) => held(claims),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claims(text: &str) -> Option<Claims> {
        let claims = json!({"sub": text, "groups": ["a", "b"], "more": {"x": 1}});
        claims.as_object().cloned()
    }

    #[test]
    fn an_answer_counts_for_a_minute() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        let (good, bad, other) = (hash("good"), hash("bad"), hash("other"));
        answers.keep(good, claims("alice"), now);
        answers.keep(bad, None, now);
        let late = now + KEPT;
        let just = late - Duration::from_nanos(1);
        assert_eq!(answers.get(&good, just), Some(claims("alice")));
        assert_eq!(answers.get(&bad, just), Some(None));
        assert_eq!(answers.get(&good, late), None);
        assert_eq!(answers.get(&other, now), None);
        answers.forget(&good);
        assert_eq!(answers.get(&good, now), None);
    }

    #[test]
    fn what_lets_nobody_in_never_keeps_out_what_does() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        let count = ANSWERS_BYTES_MAX / ENTRY_BYTES;
        for number in 0..count {
            answers.keep(hash(&number.to_string()), None, now);
        }
        assert!(answers.by_hash.len() == count && !answers.has_room(1));
        let good = hash("good");
        answers.keep(good, claims("alice"), now);
        assert_eq!(answers.get(&good, now), Some(claims("alice")));
        // And the other way round it is not kept, when all that is there lets somebody in.
        let large = "x".repeat(60 << 10);
        for number in 0..200 {
            answers.keep(hash(&format!("good {number}")), claims(&large), now);
        }
        assert!(answers.bytes <= ANSWERS_BYTES_MAX);
        assert!(answers.by_hash.len() < 140, "{}", answers.by_hash.len());
        let one_more = hash("good 199");
        assert_eq!(answers.get(&one_more, now), None);
        // When their time is over, there is room.
        answers.keep(one_more, claims(&large), now + KEPT);
        assert_eq!(answers.get(&one_more, now + KEPT), Some(claims(&large)));
        assert_eq!(answers.by_hash.len(), 1);
    }

    #[test]
    fn what_is_held_is_the_sum_of_what_there_is() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        for number in 0..1000_u32 {
            let text = "x".repeat(number as usize % 97);
            let hash = hash(&(number % 300).to_string());
            match number % 3 {
                0 => answers.keep(hash, claims(&text), now),
                1 => answers.keep(hash, None, now),
                _ => answers.forget(&hash),
            }
            let sum: usize = answers.by_hash.values().map(|said| said.bytes).sum();
            assert_eq!(answers.bytes, sum);
        }
    }
}
