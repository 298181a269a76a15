//! Which stream, run and step a command is about, and how they are told.

use crate::cli::ChosenStep;
use crate::failure::{About, Code, Failure};
use client::{ClientError, Driver};
use jiff::Timestamp;
use serde_json::Value;
use step::{Run, RunInfo, Step, StepError, StepView, Stream};
use topic::{Definition, TopicKind};
use wire::ErrorCode;

/// Opens a stream; says what there is instead if there is none of that name.
pub fn open(driver: &Driver, name: &str) -> Result<Stream, Failure> {
    let topic = match driver.open_topic(name) {
        Err(error) if error.code() == Some(ErrorCode::UnknownTopic) => {
            return Err(unknown(driver, name, &error));
        }
        other => other.about(name)?,
    };
    if topic.definition().kind() != TopicKind::Steps {
        let what = format!(
            "is a topic of events, not of steps; its events are read by thalweg tail {name}"
        );
        return Err(Failure::usage(name, what));
    }
    Stream::of(topic).about(name)
}

/// There is no such stream: which ones might have been meant.
fn unknown(driver: &Driver, name: &str, error: &ClientError) -> Failure {
    let topics = driver.list_topics().unwrap_or_default();
    let is_stream = |definition: &str| {
        Definition::from_json(definition).is_ok_and(|one| one.kind() == TopicKind::Steps)
    };
    let streams = topics.iter().filter(|topic| is_stream(&topic.definition));
    let streams: Vec<&str> = streams.map(|topic| topic.name.as_str()).collect();
    let near: Vec<&str> = streams
        .iter()
        .copied()
        .filter(|known| is_near(name, known))
        .take(NAMES_MAX)
        .collect();
    let more = match streams.len().saturating_sub(NAMES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let hint = match (near.as_slice(), streams.as_slice()) {
        (_, []) => "; this server has no streams of steps".to_owned(),
        ([], all) => {
            let named = all[..all.len().min(NAMES_MAX)].join(", ");
            format!("; streams are {named}{more}")
        }
        (near, _) => format!("; did you mean {}?", near.join(" or ")),
    };
    let error = match error {
        ClientError::Server(reply) => reply.message.clone(),
        other => other.to_string(),
    };
    Failure::new(Code::Failure, name, format!("{error}{hint}"))
}

/// So many names are told at most.
const NAMES_MAX: usize = 8;

/// Whether one name may have been meant for the other: a part of it, or with a third of the
/// letters changed, put in or taken out at most.
fn is_near(name: &str, known: &str) -> bool {
    if name.is_empty() {
        return false;
    }
    let (a, b) = (name.to_lowercase(), known.to_lowercase());
    if a.contains(&b) || b.contains(&a) {
        return true;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let change = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()] * 3 <= b.len().max(3)
}

/// A time of nanoseconds since 1970, to the second.
pub fn time(nanoseconds: u64) -> String {
    let time = Timestamp::from_second((nanoseconds / 1_000_000_000) as i64);
    time.map_or("-".to_owned(), |time| time.to_string())
}

/// The run that is wanted, or the newest one with a step.
pub fn chosen_run(stream: &Stream, wanted: Option<u64>) -> Result<RunInfo, Failure> {
    let name = stream.name();
    let runs = stream.runs().about(name)?;
    let (first, last) = match (runs.first(), runs.last()) {
        (Some(first), Some(last)) => (first.run, last.run),
        _ => return Err(Failure::new(Code::Failure, name, "no runs yet")),
    };
    let found = match wanted {
        Some(wanted) => {
            let run = runs.into_iter().find(|run| run.run == Run(wanted));
            run.ok_or_else(|| {
                let what = match first == last {
                    true => format!("there is no run {wanted}; run {first} is stored"),
                    false => {
                        format!("there is no run {wanted}; runs {first} to {last} are stored")
                    }
                };
                Failure::new(Code::Failure, name, what)
            })?
        }
        None => match runs.iter().rfind(|run| run.steps.is_some()) {
            Some(run) => run.clone(),
            None => runs.into_iter().next_back().expect("there is one"),
        },
    };
    match found.steps {
        Some(_) => Ok(found),
        None => {
            let what = format!("run {} has no steps", found.run);
            Err(Failure::new(Code::Failure, name, what))
        }
    }
}

/// The step that is wanted, or the newest one.
pub fn chosen_step(stream: &Stream, chosen: &ChosenStep) -> Result<StepView, Failure> {
    let run = chosen_run(stream, chosen.run)?;
    let (first, last) = run.steps.expect("it was chosen because it has steps");
    let step = chosen.step.map_or(last, Step);
    stream.step(run.run, step).map_err(|error| match error {
        StepError::Gone(why) => {
            let what = format!("{why}; steps {first} to {last} of the run are stored");
            Failure::new(Code::Failure, stream.name(), what)
        }
        other => failure(other, stream.name()),
    })
}

/// What a call for steps has failed with.
pub fn failure(error: StepError, subject: &str) -> Failure {
    Err::<(), _>(error)
        .about(subject)
        .expect_err("it is an error")
}

/// A shape for people.
pub fn shape_text(shape: &[u64]) -> String {
    let lengths: Vec<String> = shape.iter().map(u64::to_string).collect();
    format!("({})", lengths.join(", "))
}

/// JSON that was written by hand.
pub fn parsed(json: &str) -> Value {
    serde_json::from_str(json).expect("elements are written as JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_may_have_been_meant_is_near() {
        for (name, known) in [
            ("feilds", "fields"),
            ("field", "fields"),
            ("Fields", "fields"),
            ("run-fields-2", "fields"),
        ] {
            assert!(is_near(name, known), "{name} {known}");
        }
        assert!(!is_near("particles", "fields"));
        assert!(!is_near("", "fields"));
    }
}
