//! `thalweg steps show`.

use super::choice::{chosen_step, failure, open, parsed, shape_text, time};
use super::elements::{Form, attribute_json, attribute_text, text};
use crate::cli::StepsShowArgs;
use crate::failure::{About, Failure};
use crate::output::{Output, table};
use serde_json::{Map, Value, json};
use step::{Extremes, ShapeKind, StepError, StepView, VariableInfo};

/// So many elements of a list are shown to people.
const ELEMENTS_MAX: usize = 8;
/// So many letters of a text are.
const LETTERS_MAX: usize = 60;

pub fn run(args: &StepsShowArgs) -> Result<(), Failure> {
    let driver = args.client.connection.driver()?;
    let stream = open(&driver, &args.stream)?;
    let view = chosen_step(&stream, &args.chosen)?;
    let variables = view.variables().about(&args.stream)?;
    let mut output = Output::new(args.client.json);
    match output.is_json() {
        true => output.json(&to_json(&view, &variables).about(&args.stream)?)?,
        false => print(&mut output, &view, &variables).map_err(|problem| match problem {
            Problem::Step(error) => failure(error, &args.stream),
            Problem::Output(told) => told,
        })?,
    }
    output.flush()
}

enum Problem {
    Step(StepError),
    Output(Failure),
}

impl From<StepError> for Problem {
    fn from(error: StepError) -> Self {
        Self::Step(error)
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self::Output(failure)
    }
}

fn kind_name(kind: ShapeKind) -> &'static str {
    match kind {
        ShapeKind::Value => "value",
        ShapeKind::Array => "array",
        ShapeKind::Joined => "joined",
        ShapeKind::LocalValue => "local value",
        ShapeKind::LocalArray => "local array",
    }
}

/// Least and greatest element, of values too; `None` if they are not known.
fn extremes(view: &StepView, variable: &VariableInfo) -> Result<Option<Extremes>, StepError> {
    match variable.kind {
        ShapeKind::Value | ShapeKind::LocalValue if variable.dtype.is_text() => Ok(None),
        ShapeKind::Value | ShapeKind::LocalValue => {
            let values = view.values(&variable.name)?.concat();
            Ok(variable.dtype.extremes(&values))
        }
        _ => view.extremes(&variable.name),
    }
}

fn to_json(view: &StepView, variables: &[VariableInfo]) -> Result<Value, StepError> {
    let mut told = Vec::with_capacity(variables.len());
    for variable in variables {
        let (min, max) = match extremes(view, variable)? {
            None => (Value::Null, Value::Null),
            Some(extremes) => {
                let json = |bytes: &[u8]| parsed(&text(&variable.dtype, bytes, Form::Json));
                (json(&extremes.min), json(&extremes.max))
            }
        };
        let mut one = json!({
            "name": variable.name,
            "kind": kind_name(variable.kind),
            "dtype": variable.dtype.as_str(),
            "shape": variable.shape,
            "blocks": variable.block_count,
            "min": min,
            "max": max,
        });
        if variable.kind == ShapeKind::Value {
            let value = view.values(&variable.name)?;
            let value = value.first();
            let value = value.map(|value| parsed(&text(&variable.dtype, value, Form::Json)));
            one["value"] = value.unwrap_or_default();
        }
        told.push(one);
    }
    let attributes: Map<String, Value> = view
        .attributes()
        .iter()
        .map(|(name, value)| {
            let told = json!({
                "dtype": value.dtype().as_str(),
                "value": parsed(&attribute_json(value)),
            });
            (name.to_owned(), told)
        })
        .collect();
    Ok(json!({
        "run": view.run().0,
        "step": view.number().0,
        "writer": view.writer(),
        "ranks": view.writer_ranks(),
        "time": view.time(),
        "bytes": view.bytes(),
        "variables": told,
        "attributes": attributes,
    }))
}

fn print(output: &mut Output, view: &StepView, variables: &[VariableInfo]) -> Result<(), Problem> {
    output.line(&format!(
        "step {} of run {}, committed {}, {} bytes of {} ranks of {}",
        view.number(),
        view.run(),
        time(view.time()),
        view.bytes(),
        view.writer_ranks(),
        view.writer()
    ))?;
    if !variables.is_empty() {
        let mut rows = Vec::with_capacity(variables.len());
        for variable in variables {
            rows.push(row(view, variable)?);
        }
        let header = ["variable", "kind", "dtype", "shape", "blocks", "min", "max"];
        output.line("")?;
        output.line(&table(&header, &rows))?;
    }
    if !view.attributes().is_empty() {
        let rows: Vec<Vec<String>> = view
            .attributes()
            .iter()
            .map(|(name, value)| {
                vec![
                    name.to_owned(),
                    value.dtype().to_string(),
                    on_a_line(&attribute_text(value, ELEMENTS_MAX)),
                ]
            })
            .collect();
        output.line("")?;
        output.line(&table(&["attribute", "dtype", "value"], &rows))?;
    }
    Ok(())
}

fn row(view: &StepView, variable: &VariableInfo) -> Result<Vec<String>, StepError> {
    let plain = |bytes: &[u8]| on_a_line(&text(&variable.dtype, bytes, Form::Plain));
    let shape = match variable.kind {
        // There is nothing more to know of it.
        ShapeKind::Value => {
            let values = view.values(&variable.name)?;
            let value = values.first().map(|value| plain(value));
            format!("= {}", value.unwrap_or_default())
        }
        ShapeKind::LocalArray => "-".to_owned(),
        _ => shape_text(&variable.shape),
    };
    let (min, max) = match extremes(view, variable)? {
        Some(extremes) => (plain(&extremes.min), plain(&extremes.max)),
        None => ("-".to_owned(), "-".to_owned()),
    };
    Ok(vec![
        variable.name.clone(),
        kind_name(variable.kind).to_owned(),
        variable.dtype.to_string(),
        shape,
        variable.block_count.to_string(),
        min,
        max,
    ])
}

/// Text as it fits in a table.
fn on_a_line(text: &str) -> String {
    let mut letters = text.chars();
    let mut line: String = letters
        .by_ref()
        .take(LETTERS_MAX)
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect();
    if letters.next().is_some() {
        line.push('…');
    }
    line
}
