//! Parts together.

mod barrier;
mod figures;
mod plan;
mod published;
mod scenario;

use crate::{Scenario, Text};

/// A scenario from its text.
fn scenario(text: &str) -> Scenario {
    Scenario::from_toml(Text {
        file: "a.toml",
        text,
    })
    .unwrap_or_else(|error| panic!("{error}"))
}

/// What is said of a text that is refused.
fn refusal(text: &str) -> String {
    match Scenario::from_toml(Text {
        file: "a.toml",
        text,
    }) {
        Ok(_) => panic!("taken: {text}"),
        Err(error) => error.to_string(),
    }
}
