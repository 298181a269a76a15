//! Memory of what is gone.

use std::collections::HashMap;
use std::hash::Hash;

/// Gives back what a map has room for, if three quarters of it are empty: else each of many exchanges could keep what its
/// bindings once took.
pub(crate) fn shrink<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if map.capacity() > 64 && map.len() < map.capacity() / 4 {
        map.shrink_to(2 * map.len());
    }
}
