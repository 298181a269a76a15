//! What a match of a regular expression may cost, derived from its text.

use super::Cost;

/// Steps of a pattern that may backtrack, which it does at most
/// [`super::BACKTRACK_MAX`] times.
const BACKTRACKING: u64 = 2_000;
/// A larger automaton is not distinguished from a larger one still.
const STATES_MAX: u64 = 1_000_000;

/// What one match costs, at once and for each 16 bytes of text.
///
/// A pattern without look-around is an automaton. Where that is small, or ends
/// after a bounded text, the time is that of reading the text. Otherwise it may
/// be that times the number of states, which a counted repetition multiplies.
pub fn pattern_cost(pattern: &str) -> Cost {
    if may_backtrack(pattern) {
        return Cost {
            own: BACKTRACKING,
            sized: 1,
        };
    }
    let Shape { states, is_bounded } = shape(pattern);
    match is_bounded {
        true => Cost {
            own: states / 4,
            sized: 1,
        },
        false => Cost {
            own: 0,
            sized: 1 + states * states / 16,
        },
    }
}

/// Whether a pattern looks around, refers back or holds on to what it matched.
pub fn may_backtrack(pattern: &str) -> bool {
    let bytes = pattern.as_bytes();
    let pairs = bytes.windows(2).enumerate();
    let mut found = pairs.map(|(at, pair)| match pair {
        [b'\\', b'1'..=b'9' | b'k' | b'K' | b'G'] => true,
        [b'*' | b'+' | b'?' | b'}', b'+'] => true,
        [b'(', b'?'] => match bytes.get(at + 2) {
            Some(b'<') => matches!(bytes.get(at + 3), Some(b'=' | b'!')),
            Some(next) => !(next.is_ascii_alphabetic() || matches!(next, b':' | b'-')),
            None => true,
        },
        _ => false,
    });
    found.any(|it| it)
}

struct Shape {
    /// Of the automaton, about.
    states: u64,
    /// It begins at the start and ends after a bounded text.
    is_bounded: bool,
}

/// Reads a pattern. Whatever is no pattern gives some shape: compiling complains.
fn shape(pattern: &str) -> Shape {
    // States of each open group, and of the last thing in it, which a repetition repeats.
    let mut groups: Vec<(u64, u64)> = vec![(0, 0)];
    let mut is_bounded = pattern.starts_with('^');
    let mut chars = pattern.chars().peekable();
    while let Some(char) = chars.next() {
        let depth = groups.len();
        let Some((all, last)) = groups.last_mut() else {
            break;
        };
        match char {
            '(' => {
                groups.push((0, 0));
                continue;
            }
            ')' if depth > 1 => {
                let size = *all + *last;
                groups.pop();
                if let Some((all, last)) = groups.last_mut() {
                    *all = (*all + *last).min(STATES_MAX);
                    *last = size;
                }
                continue;
            }
            '|' => is_bounded &= depth > 1,
            '*' | '+' => is_bounded = false,
            '?' | '^' | '$' => {}
            '{' => {
                let text: String = chars.by_ref().take_while(|it| *it != '}').collect();
                let (least, most) = text.split_once(',').unwrap_or((&text, &text));
                is_bounded &= !most.is_empty();
                let parse = |text: &str| text.trim().parse::<u64>().unwrap_or(0);
                let times = parse(least).max(parse(most)).clamp(1, STATES_MAX);
                *last = (*last * times).min(STATES_MAX);
            }
            atom => {
                *all = (*all + *last).min(STATES_MAX);
                *last = 1;
                if atom == '[' {
                    skip_class(&mut chars);
                }
                // The name of a class is no repetition.
                if atom == '\\'
                    && matches!(chars.next(), Some('p' | 'P' | 'x' | 'u'))
                    && chars.peek() == Some(&'{')
                {
                    chars.by_ref().find(|it| *it == '}');
                }
            }
        }
    }
    let states = groups.iter().map(|(all, last)| all + last).sum::<u64>();
    Shape {
        states: states.min(STATES_MAX),
        is_bounded,
    }
}

/// Skips what stands behind a `[`, up to its `]`.
fn skip_class(chars: &mut impl Iterator<Item = char>) {
    let (mut depth, mut is_first) = (1, true);
    while let Some(char) = chars.next() {
        match char {
            '\\' => {
                chars.next();
            }
            '^' if is_first => continue,
            '[' => depth += 1,
            ']' if !is_first => depth -= 1,
            _ => {}
        }
        is_first = false;
        if depth == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_counted() {
        for (pattern, states, is_bounded) in [
            ("^[a-z]+[0-9]*$", 2, false),
            ("^[0-9a-f]{64}$", 64, true),
            ("^[]a{5}]{2,3}(ab|c){2}$", 9, true),
            ("^a|b", 2, false),
            ("^(?:a{3}){4,}", 14, false),
            ("^\\p{Letter}x\\{", 3, true),
            ("a[ab]{500}d|a[ab]{500}e", 1004, false),
            ("^((a{1000}){1000}){1000}$", STATES_MAX, true),
            ("^[a", 1, true),
            (")))", 3, false),
        ] {
            let found = shape(pattern);
            let found = (found.states, found.is_bounded);
            // The marks of a group count as if they were in it.
            let least = (states, is_bounded);
            assert!(
                found.1 == least.1 && found.0 >= least.0 && found.0 <= least.0 + 12,
                "{pattern}: {found:?}"
            );
        }
    }

    #[test]
    fn what_backtracks_is_told() {
        for pattern in [
            "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(a)\\1", "(?>a)", "a++",
        ] {
            assert!(may_backtrack(pattern), "{pattern}");
        }
        for pattern in ["(?:a)", "(?i)a", "(?P<n>a)", "(?<n>a)", "a+", "a\\+"] {
            assert!(!may_backtrack(pattern), "{pattern}");
        }
    }
}
