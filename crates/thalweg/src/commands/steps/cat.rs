//! `thalweg steps cat`.

use super::choice::{chosen_step, failure, open};
use super::elements::{Form, push};
use crate::cli::StepsCatArgs;
use crate::failure::{About, Failure};
use crate::output::Output;
use crate::progress::Progress;
use serde_json::json;
use step::{Along, DType, Range, Selection, ShapeKind, StepView};

/// So many bytes of a variable are read at once.
const PIECE_BYTES: u64 = 64 << 20;
/// Text goes out in pieces of this length.
const TEXT_BYTES: usize = 64 << 10;

pub fn run(args: &StepsCatArgs) -> Result<(), Failure> {
    let driver = args.client.connection.driver()?;
    let stream = open(&driver, &args.stream)?;
    let view = chosen_step(&stream, &args.chosen)?;
    let mut output = Output::new(args.client.json);
    print(args, &view, &mut output)?;
    output.flush()
}

fn print(args: &StepsCatArgs, view: &StepView, output: &mut Output) -> Result<(), Failure> {
    let name = &args.variable;
    let variable = view.variable(name).about(&args.stream)?;
    let layout = view.layout(name).about(&args.stream)?;
    let is_value = matches!(variable.kind, ShapeKind::Value | ShapeKind::LocalValue);
    let shape = match args.block {
        Some(_) if is_value => {
            let why = format!("variable {name:?} has values and no blocks");
            return Err(Failure::usage("--block", why));
        }
        // Also says that there is no such block.
        Some(block) => layout
            .shape_of(&Selection::Block(block))
            .map_err(|error| Failure::usage("--block", error))?,
        None if variable.kind == ShapeKind::LocalArray => {
            let why = format!(
                "variable {name:?} has {} blocks that are arrays by themselves; \
                 choose one with --block",
                variable.block_count
            );
            return Err(Failure::usage(&args.stream, why));
        }
        None => variable.shape.clone(),
    };
    let along = match &args.box_ {
        Some(text) => slices(text, &shape).map_err(|why| Failure::usage("--box", why))?,
        None => vec![Along::Whole; shape.len()],
    };
    let ranges = Selection::Box(along)
        .resolve(name, &shape)
        .map_err(|error| Failure::usage("--box", error))?;
    let lengths: Vec<u64> = ranges.iter().map(|range| range.count).collect();

    let mut writer = Elements::new(&variable.dtype, &lengths, args.raw, output.is_json());
    let mut uncovered = 0;
    if output.is_json() {
        let head = json!({
            "run": view.run().0,
            "step": view.number().0,
            "variable": name,
            "dtype": variable.dtype.as_str(),
            "shape": lengths,
        });
        let head = head.to_string();
        output.bytes(head.trim_end_matches('}').as_bytes())?;
        output.bytes(b",\"values\":")?;
    }
    if is_value {
        let values = view.values(name).about(&args.stream)?;
        let first = ranges.first().copied();
        for (index, value) in values.iter().enumerate() {
            if first.is_none_or(|range| holds(range, index as u64)) {
                writer.element(value, output)?;
            }
        }
    } else {
        let item = u64::from(variable.dtype.item_bytes());
        let bytes = lengths.iter().product::<u64>().saturating_mul(item);
        let bar = Progress::bytes(name, bytes);
        for piece in pieces(&ranges, item) {
            let along = piece.into_iter().map(Along::Range).collect();
            let selection = match args.block {
                None => Selection::Box(along),
                Some(block) => Selection::BlockBox { block, along },
            };
            let read = view.get(name, &selection);
            let array = read.map_err(|error| failure(error, &args.stream))?;
            uncovered += array.coverage.uncovered;
            writer.elements(&array.data, output)?;
            bar.add(array.data.len() as u64);
        }
    }
    writer.finish(output)?;
    if output.is_json() {
        output.line(&format!(",\"uncovered\":{uncovered}}}"))?;
    }
    if uncovered > 0 {
        output.flush()?;
        eprintln!("note: {uncovered} elements are in no block of {name:?}: they are 0 here");
    }
    Ok(())
}

fn holds(range: Range, index: u64) -> bool {
    let distance = index.checked_sub(range.start);
    distance.is_some_and(|distance| {
        distance.is_multiple_of(range.step) && distance / range.step < range.count
    })
}

/// NumPy slices, one for each dimension.
fn slices(text: &str, shape: &[u64]) -> Result<Vec<Along>, String> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.len() != shape.len() {
        return Err(format!(
            "{text:?} has {} slices, and the variable {} dimensions: {shape:?}",
            parts.len(),
            shape.len()
        ));
    }
    let slice = |(part, length): (&&str, &u64)| slice(part, *length);
    parts.iter().zip(shape).map(slice).collect()
}

fn slice(text: &str, length: u64) -> Result<Along, String> {
    let refuse = || format!("{text:?} is no START:END, START:END:STEP, index or `:`");
    // From the end, if it is negative.
    let place = |text: &str| -> Result<u64, String> {
        match text.strip_prefix('-') {
            Some(behind) => {
                let behind: u64 = behind.parse().map_err(|_| refuse())?;
                let place = length.checked_sub(behind);
                place.ok_or_else(|| format!("{text} is before the beginning: there are {length}"))
            }
            None => text.parse().map_err(|_| refuse()),
        }
    };
    let parts: Vec<&str> = text.split(':').collect();
    let (start, end, step) = match parts.as_slice() {
        [index] => {
            let start = place(index)?;
            return Ok(Along::Range(Range {
                start,
                count: 1,
                step: 1,
            }));
        }
        [start, end] => (*start, *end, ""),
        [start, end, step] => (*start, *end, *step),
        _ => return Err(refuse()),
    };
    let start = if start.is_empty() { 0 } else { place(start)? };
    let end = if end.is_empty() { length } else { place(end)? };
    let step: u64 = match step {
        "" => 1,
        step => step.parse().map_err(|_| refuse())?,
    };
    if step == 0 {
        return Err(format!("{text:?}: the step is 0"));
    }
    if end > length {
        return Err(format!(
            "{text:?} ends behind {length}, where the dimension does"
        ));
    }
    Ok(Along::Range(Range {
        start,
        count: end.saturating_sub(start).div_ceil(step),
        step,
    }))
}

/// Boxes of a bounded size that are `ranges` one after the other, in row-major order.
fn pieces(ranges: &[Range], item_bytes: u64) -> impl Iterator<Item = Vec<Range>> + '_ {
    // Dimensions from `whole` on are whole in each piece; the one before is cut; others are single.
    let mut whole = ranges.len();
    let mut bytes = item_bytes.max(1);
    while let Some(range) = ranges[..whole].last() {
        match bytes.checked_mul(range.count.max(1)) {
            Some(more) if more <= PIECE_BYTES => bytes = more,
            _ => break,
        }
        whole -= 1;
    }
    let most = (PIECE_BYTES / bytes).max(1);
    let is_empty = ranges.iter().any(|range| range.count == 0);
    let mut at = vec![0u64; whole];
    let mut is_done = is_empty;
    std::iter::from_fn(move || {
        if is_done {
            return None;
        }
        let mut piece = ranges.to_vec();
        for (dimension, at) in at.iter().enumerate() {
            let range = &mut piece[dimension];
            let most = if dimension + 1 == whole { most } else { 1 };
            range.start += at * range.step;
            range.count = most.min(range.count - at);
        }
        // On to the next one, as a counter does.
        is_done = true;
        for dimension in (0..whole).rev() {
            at[dimension] += if dimension + 1 == whole { most } else { 1 };
            if at[dimension] < ranges[dimension].count {
                is_done = false;
                break;
            }
            at[dimension] = 0;
        }
        Some(piece)
    })
}

/// Writes elements as they come, with what stands between them.
struct Elements<'a> {
    dtype: &'a DType,
    form: Form,
    is_raw: bool,
    /// How many elements the array has in its last dimension, in its last two, and so on.
    products: Vec<u64>,
    dimensions: usize,
    count: u64,
    text: String,
}

impl<'a> Elements<'a> {
    fn new(dtype: &'a DType, lengths: &[u64], is_raw: bool, is_json: bool) -> Self {
        let mut products = Vec::with_capacity(lengths.len());
        let mut product = 1u64;
        for length in lengths.iter().rev() {
            product = product.saturating_mul(*length);
            products.push(product);
        }
        Self {
            dtype,
            form: if is_json { Form::Json } else { Form::Plain },
            is_raw,
            products,
            dimensions: lengths.len(),
            count: 0,
            text: String::new(),
        }
    }

    fn elements(&mut self, bytes: &[u8], output: &mut Output) -> Result<(), Failure> {
        if self.is_raw {
            return output.bytes(bytes);
        }
        for element in bytes.chunks_exact(self.dtype.item_bytes() as usize) {
            self.element(element, output)?;
        }
        Ok(())
    }

    fn element(&mut self, bytes: &[u8], output: &mut Output) -> Result<(), Failure> {
        if self.is_raw {
            return output.bytes(bytes);
        }
        // How many dimensions begin here, and how many end behind it.
        let turned = |count: u64| {
            let whole = |product: &&u64| count.is_multiple_of(**product);
            self.products.iter().take_while(whole).count()
        };
        let (begun, ended) = (turned(self.count), turned(self.count + 1));
        match self.form {
            Form::Json => {
                if self.count > 0 {
                    self.text.push(',');
                }
                self.text.extend(std::iter::repeat_n('[', begun));
                push(&mut self.text, self.dtype, bytes, self.form);
                self.text.extend(std::iter::repeat_n(']', ended));
            }
            Form::Plain => {
                // A line between two matrices.
                if begun > 1 && self.count > 0 {
                    self.text.push('\n');
                }
                if begun == 0 && self.count > 0 {
                    self.text.push(' ');
                }
                push(&mut self.text, self.dtype, bytes, self.form);
                if ended > 0 || self.dimensions == 0 {
                    self.text.push('\n');
                }
            }
        }
        self.count += 1;
        if self.text.len() > TEXT_BYTES {
            self.flush(output)?;
        }
        Ok(())
    }

    fn flush(&mut self, output: &mut Output) -> Result<(), Failure> {
        let written = output.bytes(self.text.as_bytes());
        self.text.clear();
        written
    }

    fn finish(mut self, output: &mut Output) -> Result<(), Failure> {
        if self.count == 0 && self.form == Form::Json {
            self.text.push_str("[]");
        }
        self.flush(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, count: u64, step: u64) -> Range {
        Range { start, count, step }
    }

    #[test]
    fn slices_are_as_numpy_has_them() {
        let of = |text: &str| slices(text, &[10, 20]);
        let some = |one: Range, other: Range| Ok(vec![Along::Range(one), Along::Range(other)]);
        assert_eq!(of("0:10,5:6"), some(range(0, 10, 1), range(5, 1, 1)));
        assert_eq!(of(":, 3"), some(range(0, 10, 1), range(3, 1, 1)));
        assert_eq!(of("-1,-3:"), some(range(9, 1, 1), range(17, 3, 1)));
        assert_eq!(of("::3,1:20:2"), some(range(0, 4, 3), range(1, 10, 2)));
        assert_eq!(of("5:5,7:3"), some(range(5, 0, 1), range(7, 0, 1)));
        for refused in [
            "1",
            "1,2,3",
            "a,1",
            "0:11,:",
            "::0,:",
            "-11,0",
            "1:2:3:4,0",
            ",",
        ] {
            assert!(of(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn pieces_are_the_whole_in_order() {
        let mib = 1 << 20;
        // 4 x 3 x 64 MiB: a row each; and 4 x 3 x 40 MiB, in rows too.
        for last in [64 * mib, 40 * mib] {
            let ranges = [range(1, 4, 2), range(0, 3, 1), range(0, last, 1)];
            let pieces: Vec<_> = pieces(&ranges, 1).collect();
            assert_eq!(pieces.len(), 12);
            assert_eq!(pieces[4], [range(3, 1, 2), range(1, 1, 1), ranges[2]]);
        }
        // A row is longer than a piece.
        let ranges = [range(0, 2, 1), range(5, 100 * mib, 2)];
        let found: Vec<_> = pieces(&ranges, 1).collect();
        assert_eq!(found.len(), 4);
        assert_eq!(
            found[1],
            [range(0, 1, 1), range(5 + 128 * mib, 36 * mib, 2)]
        );
        assert_eq!(found[2][0], range(1, 1, 1));
        // Several rows are one; nothing is none.
        let found: Vec<_> = pieces(&[range(0, 7, 1), range(0, 16 * mib, 1)], 1).collect();
        let counts: Vec<u64> = found.iter().map(|piece| piece[0].count).collect();
        assert_eq!(counts, [4, 3]);
        assert_eq!(pieces(&[range(0, 0, 1), range(0, 2, 1)], 8).count(), 0);
        assert_eq!(pieces(&[], 8).count(), 1);
    }

    #[test]
    fn values_of_ranks_are_chosen_by_their_numbers() {
        let held: Vec<u64> = (0..10)
            .filter(|index| holds(range(1, 3, 2), *index))
            .collect();
        assert_eq!(held, [1, 3, 5]);
    }
}
